// The suite's client, through the proxy in $PROXY: as it is, but for how it fetches, and for the names of invented fields.

import { createRequire } from 'module'
import { pathToFileURL } from 'url'
import { sent } from './names.mjs'

const suite = process.env.SUITE
const require = createRequire(suite + '/package.json')
const { ProxyAgent, fetch } = require('undici')

const agent = new ProxyAgent({ uri: process.env.PROXY, proxyTunnel: false })
globalThis.fetch = (url, init = {}) => {
  const headers = Array.isArray(init.headers) ? init.headers.map(([name, value]) => [sent(name), value]) : init.headers
  return fetch(url, { ...init, headers, dispatcher: init.dispatcher ?? agent })
}
await import(pathToFileURL(suite + '/test-engine/cli.mjs'))
process.exit(0)
