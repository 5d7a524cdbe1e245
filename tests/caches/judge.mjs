// What the suite says of results (JSON on standard input): by test, its kind and pass, fail or the like.

import fs from 'fs'
import { pathToFileURL } from 'url'

const suite = process.env.SUITE
const { default: tests } = await import(pathToFileURL(suite + '/tests/index.mjs'))
const { determineTestResult, resultTypes } = await import(pathToFileURL(suite + '/test-engine/lib/results.mjs'))

const results = JSON.parse(fs.readFileSync(0))
const names = new Map(Object.entries(resultTypes).map(([name, type]) => [type, name]))
const judged = {}
for (const group of tests) {
  for (const test of group.tests) {
    // Tests of browsers, and those whose client cannot be sent through a proxy.
    if (test.browser_only || group.id === 'interim') continue
    judged[test.id] = [test.kind ?? 'required', names.get(determineTestResult(tests, test.id, results, false))]
  }
}
console.log(JSON.stringify(judged))
