// A small MCP server with one tool, and a defect that ends it.
import { createInterface } from 'node:readline'

const forecast = {
  name: 'forecast',
  description: 'The weather of the next days.',
  inputSchema: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'] },
}

const methods = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'weather', version: '0.3.0' } }),
  'tools/list': () => ({ tools: [forecast] }),
  'tools/call': ({ arguments: { city, days = 1 } }) => {
    if (days > 5) {
      console.error('Error: no data for more than 5 days')
      process.exit(1)
    }
    return { content: [{ type: 'text', text: `${city}: sunny` }] }
  },
}

createInterface({ input: process.stdin }).on('line', line => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result: methods[method]?.(params) ?? {} }))
})
