// Takes the steps of the README with openapi-fetch and the types that openapi-typescript
// generates from the OpenAPI document:
//
//   node walk.js BASE CREDENTIALS TESTDATA
//
// CREDENTIALS is a file with the output of `tranche client create --output json`.
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import createClient, { type Middleware } from 'openapi-fetch'
import type { components, paths } from './client.js'

type Schemas = components['schemas']

const [base, credentials, testdata] = process.argv.slice(2)
assert(base && credentials && testdata, 'usage: node walk.js BASE CREDENTIALS TESTDATA')
const workflow = { alias: 'pre-qualification', version: 'v1' }

const anonymous = createClient<paths>({ baseUrl: base })
const login = await anonymous.POST('/identity/resources/auth/v1/api-token', { body: await read<Schemas['TokenRequest']>(credentials) })
assert(login.data, JSON.stringify(login.error))
const refreshed = await anonymous.POST('/identity/resources/auth/v1/api-token/refresh', { body: { refreshToken: login.data.refreshToken } })
assert(refreshed.data, JSON.stringify(refreshed.error))
const { accessToken } = refreshed.data

const bearer: Middleware = {
  onRequest({ request }) {
    request.headers.set('Authorization', `Bearer ${accessToken}`)
    return request
  },
}
const client = createClient<paths>({ baseUrl: base })
client.use(bearer)

// A workflow: drafted, published.
const created = await client.POST('/v2/workflows', {
  body: await read<Schemas['WorkflowCreate']>(join(testdata, 'workflows', `${workflow.alias}.json`)),
})
assert(created.data, JSON.stringify(created.error))
assert.equal(created.data.publishedAt, null)
const published = await client.POST('/v2/workflows/{id}/publish', { params: { path: { id: created.data.id } } })
assert.equal(published.data?.status, 'active', JSON.stringify(published.error))

// Run for one applicant, and refused for one without a score.
const input = await read<Record<string, unknown>>(join(testdata, 'application.json'))
const executed = await client.POST('/v1/workflows/{alias}/{version}/execute', { params: { path: workflow }, body: input })
assert(executed.data && 'output' in executed.data, JSON.stringify(executed.error))
assert.equal(executed.data.isSuccess, true)
assert.equal(executed.data.output['decision'], 'approve')
const { score, ...incomplete } = input
assert(score)
const refused = await client.POST('/v1/workflows/{alias}/{version}/execute', { params: { path: workflow }, body: incomplete })
assert.equal(refused.response.status, 422)
assert.equal(refused.error?.errorSubCode, 'INPUT_SCHEMA_MISMATCH')
assert.equal(refused.error.details.length, 1)

// And for many: a file at a signed address, a batch over it.
const fileName = 'loan-applications.csv'
const address = await client.POST('/v1/stores/packages/commands/attachments/generate-upload-signed-url', { body: { fileName } })
assert(address.data, JSON.stringify(address.error))
const file = await readFile(join(testdata, fileName))
const { pathname, searchParams } = new URL(address.data.signedUrl)
const stored = await anonymous.PUT('/v1/stores/attachments/{attachmentId}', {
  params: {
    path: { attachmentId: basename(pathname) },
    query: signed(searchParams),
  },
  headers: { 'Content-Type': address.data.contentType },
  body: file.toString(),
  bodySerializer: (text) => text,
})
assert.equal(stored.data?.size, file.length, JSON.stringify(stored.error))
const started = await client.POST('/v1/workflows/{alias}/{version}/execute-batch', {
  params: { path: workflow },
  body: { attachmentFileNames: [address.data.fileName] },
})
assert(started.data, JSON.stringify(started.error))
const batch = await complete(started.data.executionBatchId)
const { total, completed, failed, pending } = batch.state.batchItemsExecutionsSummary
assert.equal(total, completed + failed)
assert.equal(pending, 0)

// The files of its package.
const packageId = batch.outputs.wBatchPostProcessingOutput.processedOutputPackageId
assert(packageId)
const files = await client.GET('/v1/stores/packages/{packageId}/attachments', { params: { path: { packageId } } })
assert(files.data, JSON.stringify(files.error))
const names = files.data.data.map((attachment) => attachment.fileName)
for (const name of ['results.csv', 'results.jsonl', 'failed.csv', 'manifest.json']) {
  assert(names.includes(name), `the package has no ${name}, but ${names}`)
}
console.log('the TypeScript client walked through the README')

// complete waits for the end of a batch.
async function complete(batchId: string): Promise<Schemas['BatchRecord']> {
  for (let seconds = 0; seconds < 120; seconds++) {
    const { data, error } = await client.GET('/v1/execution-batches/{batchId}', { params: { path: { batchId } } })
    assert(data, JSON.stringify(error))
    if (data.status === 'complete') return data
    assert(!data.status.endsWith('failed'), JSON.stringify(data))
    await setTimeout(1000) // 200 a minute are allowed
  }
  throw new Error('the batch is not complete after two minutes')
}

// signed are the parameters of a signed address.
function signed(query: URLSearchParams) {
  const get = (name: string) => query.get(name) ?? assert.fail(`the address has no ${name}`)
  return { tenant: get('tenant'), name: get('name'), type: get('type'), size: get('size'), expires: get('expires'), signature: get('signature') }
}

async function read<T>(name: string): Promise<T> {
  return JSON.parse(await readFile(name, 'utf8'))
}
