// The proxy caches no answer to a request with a field that it does not know: the suite's invented ones go by names that browsers use.

const invented = ['Foo', 'Bar', 'Baz', 'Abc', 'Other', 'Test-Name', 'Test-ID', 'Req-Num'].map(name => name.toLowerCase())

export const sent = name => invented.includes(name.toLowerCase()) ? 'Sec-CH-' + name : name

// In the members of Vary.
export const sentList = value => value.split(',').map(name => sent(name.trim())).join(', ')

export function received (headers) {
  for (const name of invented) {
    if (sent(name).toLowerCase() in headers) headers[name] = headers[sent(name).toLowerCase()]
  }
}
