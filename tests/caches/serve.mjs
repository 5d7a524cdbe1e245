// The suite's server, as it is, but for the names of invented fields.

import http from 'http'
import { pathToFileURL } from 'url'
import { received, sentList } from './names.mjs'

const emit = http.Server.prototype.emit
http.Server.prototype.emit = function (event, request, response) {
  if (event === 'request') {
    received(request.headers)
    const setHeader = response.setHeader
    response.setHeader = (name, value) => {
      const isVary = name.toLowerCase() === 'vary'
      return setHeader.call(response, name, isVary ? [value].flat().map(sentList) : value)
    }
  }
  return emit.apply(this, arguments)
}
await import(pathToFileURL(process.env.SUITE + '/test-engine/server/server.mjs'))
