package batch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// megabytesVariable names the variable with the size of the uploaded files.
const megabytesVariable = "TRANCHE_TEST_UPLOAD_MB"

func uploadedBytes(t *testing.T) int64 {
	t.Helper()
	megabytes := 4
	if text := os.Getenv(megabytesVariable); text != "" {
		var err error
		megabytes, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	return int64(megabytes) << 20
}

// longTable is a .csv file that is generated while it is read. Every row has a long note that
// reading skips, so the file has many bytes and few items.
type longTable struct {
	rows, next int
	note       []byte
	left       []byte // of the row that is being read
	seen       func() // called now and then while it is read; may be nil
}

const longRow = "B-%08d,1000.00,%d,%s\n"

func newLongTable(size int64, noteBytes int) *longTable {
	noise := make([]byte, noteBytes*3/4)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(noise)
	f := &longTable{note: []byte(base64.RawURLEncoding.EncodeToString(noise))}
	row := len(fmt.Sprintf(longRow, 0, 0, f.note))
	f.rows = int(size) / row
	f.left = []byte("borrowerId,income,debt,_note\n")
	return f
}

// size returns how many bytes are still to be read.
func (f *longTable) size() int64 {
	return int64(len(f.left)) + int64(f.rows-f.next)*int64(len(fmt.Sprintf(longRow, 0, 0, f.note)))
}

func (f *longTable) Read(p []byte) (int, error) {
	if len(f.left) == 0 {
		if f.next == f.rows {
			return 0, io.EOF
		}
		if f.seen != nil && f.next%(f.rows/5) == 1 {
			f.seen()
		}
		f.left = fmt.Appendf(f.left, longRow, f.next, f.next%9, f.note)
		f.next++
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}

// announce requests the address of an upload.
func announce(t *testing.T, c *apitest.Caller) (address, storedName string) {
	t.Helper()
	made := c.Post(t, "/v1/stores/packages/commands/attachments/generate-upload-signed-url", map[string]any{"fileName": "long.csv"}).Expect(http.StatusCreated)
	return made.Text("signedUrl"), made.Text("fileName")
}

// put sends a body of a known length to the address of an upload.
func put(t *testing.T, address string, size int64, body io.Reader) (answer string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address, body)
	require.NoError(t, err)
	request.ContentLength = size
	request.Header.Set("Content-Type", "text/csv")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", text)
	return string(text), nil
}

// putAll uploads a whole table and returns its hash.
func putAll(t *testing.T, address string, f *longTable) (hash string) {
	t.Helper()
	sum := sha256.New()
	answer, err := put(t, address, f.size(), io.TeeReader(f, sum))
	require.NoError(t, err)
	hash = hex.EncodeToString(sum.Sum(nil))
	require.Contains(t, answer, hash)
	return hash
}

// heap measures the maximal size of the heap.
type heap struct{ before, most uint64 }

func newHeap() *heap { h := &heap{}; h.look(); h.before = h.most; return h }

func (h *heap) look() {
	runtime.GC()
	runtime.GC() // pools survive one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.most = max(h.most, m.HeapAlloc)
}

// Long files are uploaded, read and downloaded in little memory, also after an interrupted
// upload. (`make large-files` uses several hundred megabytes each.)
func TestLongUploads(t *testing.T) { // it measures the heap of the process
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	const count, noteBytes, heapMax = 3, 30_000, 48 << 20
	size := uploadedBytes(t)
	h := newHeap()

	address, name := announce(t, c)
	torn, cable := newLongTable(size, noteBytes), errors.New("the cable was pulled")
	_, err := put(t, address, torn.size(), io.MultiReader(io.LimitReader(torn, size/2), iotest.ErrReader(cable)))
	require.ErrorIs(t, err, cable)

	var names, hashes []string
	rows := 0
	for range count {
		f := newLongTable(size, noteBytes)
		f.seen = h.look
		rows += f.rows
		names, hashes = append(names, name), append(hashes, putAll(t, address, f))
		address, name = announce(t, c)
	}

	started := c.Post(t, "/v1/workflows/affordability/v1/execute-batch", map[string]any{"attachmentFileNames": names}).Expect(http.StatusAccepted)
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(tick) {
		h.look()
		r := c.Get(t, "/v1/execution-batches/"+started.Text("executionBatchId")).Expect(http.StatusOK)
		if r.Text("status") == "complete" {
			require.Equal(t, strconv.Itoa(rows), r.Text("state.batchItemsExecutionsSummary.completed"))
			break
		}
		require.True(t, time.Now().Before(deadline), "the batch does not end: %s", r.Body)
	}

	raw := c.Get(t, "/v1/stores/packages/"+started.Text("rawPackageId")+"/attachments").Expect(http.StatusOK)
	for i, hash := range hashes {
		answer, err := http.Get(raw.Text(fmt.Sprintf("data[%d].downloadUrl", i)))
		require.NoError(t, err)
		sum := sha256.New()
		_, err = io.Copy(sum, answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, hash, hex.EncodeToString(sum.Sum(nil)))
		h.look()
	}
	t.Logf("%d files of %d bytes, %d items, in %d bytes of memory", count, size, rows, h.most-h.before)
	require.Less(t, h.most-h.before, uint64(heapMax))
}

// Long files of ten tenants do not delay a small batch of another tenant: it ends before most of
// them, though it came last.
func TestLongFilesDelayNoSmallBatch(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	const tenants, noteBytes = 10, 200
	type long struct {
		caller   *apitest.Caller
		file, id string
	}
	batches := make([]long, tenants)
	var rows int
	for i := range batches {
		c := s.Tenant(t).As(t, identity.RoleAdmin)
		publish(t, c, affordability)
		f := newLongTable(uploadedBytes(t)/4, noteBytes)
		rows = f.rows
		address, name := announce(t, c)
		putAll(t, address, f)
		batches[i] = long{caller: c, file: name}
	}
	small := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, small, affordability)
	name := upload(t, small, "small.csv", "borrowerId,income,debt\n"+string(bytes.Repeat([]byte("B-1,1000.00,1\n"), 50)))
	for i := range batches {
		b := &batches[i]
		b.id = start(t, b.caller, "affordability", map[string]any{"attachmentFileNames": []string{b.file}})
	}
	r := follow(t, small, start(t, small, "affordability", map[string]any{"attachmentFileNames": []string{name}}))
	require.Equal(t, [4]int{50, 50, 0, 0}, counts(r))
	later := 0
	for _, b := range batches {
		last := until(t, b.caller, b.id, func(r record) bool { return r.Status == "complete" })
		require.Equal(t, [4]int{rows, rows, 0, 0}, counts(last))
		if r.UpdatedAt.Before(last.UpdatedAt) {
			later++
		}
	}
	require.Greater(t, later, tenants/2, "long batches that ended after the small one")
}

// An unchanged failed.csv gives the inputs that failed, whatever the names of their properties,
// and even without any.
func TestFailedItemsUploadedAgain(t *testing.T) {
	t.Parallel()
	c := apitest.Start(t).Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Gate", "alias": "gate", "inputSchema": {"type": "object"},
		"tasks": [{"id": "refuse", "type": "end", "config": {"status": "failed", "errorMessage": "not today"}}]}`)
	run := func(t *testing.T, fileName, file string) (failed string, inputs []string) {
		t.Helper()
		r := follow(t, c, start(t, c, "gate", map[string]any{"attachmentFileNames": []string{upload(t, c, fileName, file)}}))
		require.NotNil(t, r.Outputs.Post.PackageID, r.Outputs.Pre.Result)
		texts := files(t, c, *r.Outputs.Post.PackageID)
		for line := range strings.Lines(texts["results.jsonl"]) {
			var item struct{ Input json.RawMessage }
			require.NoError(t, json.Unmarshal([]byte(line), &item))
			inputs = append(inputs, string(item.Input))
		}
		return texts["failed.csv"], inputs
	}
	for name, items := range map[string][]string{
		"no names":             {`{"":"1","a":{"":"2"}}`, `{"":{"":"3"}}`, `{"a":{"":{"b":"4"}}}`, `{".":"5","\\":"6"}`},
		"white space":          {`{" ":"1"," a":"2","a ":"3"}`, `{"\t=":"5"," a ":{"b ":{" c":"4"}}}`},
		"no members":           {`{}`, `{}`},
		"some without members": {`{}`, `{"a":"1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed, inputs := run(t, "a.jsonl", strings.Join(items, "\n"))
			require.Equal(t, items, inputs)
			_, inputs = run(t, "failed.csv", failed)
			require.Equal(t, items, inputs, failed)
		})
	}
	t.Run("no object", func(t *testing.T) {
		t.Parallel()
		failed, _ := run(t, "a.jsonl", "5\n{\"a\": \"1\"}")
		_, inputs := run(t, "failed.csv", failed)
		require.Equal(t, []string{`{}`, `{"a":"1"}`}, inputs, failed)
	})
}
