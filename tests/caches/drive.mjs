// The suite's client, through the proxy in $PROXY: as it is, but for how it fetches.

import { createRequire } from 'module'
import { pathToFileURL } from 'url'

const suite = process.env.SUITE
const require = createRequire(suite + '/package.json')
const { ProxyAgent, fetch } = require('undici')

const agent = new ProxyAgent({ uri: process.env.PROXY, proxyTunnel: false })
globalThis.fetch = (url, init = {}) => fetch(url, { ...init, dispatcher: init.dispatcher ?? agent })
await import(pathToFileURL(suite + '/test-engine/cli.mjs'))
process.exit(0)
