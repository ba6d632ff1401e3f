package storage_test

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/storage"
)

func TestSignedAddresses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC)
	clock := func() time.Time { return now }
	signer := storage.NewSigner(bytes.Repeat([]byte{1}, 32), "https://example.com/", clock)
	a := storage.Attachment{ID: pgtest.NewID(t), TenantID: pgtest.NewID(t), StoredName: "x.csv", ContentType: "text/csv", Size: 7}
	address, expiresAt := signer.UploadURL(a)
	require.Equal(t, now.Add(15*time.Minute), expiresAt)
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(address, "https://example.com/v1/stores/attachments/"+a.ID.String()+"?"), address)

	grant, err := signer.Verify(storage.ActionUpload, a.ID.String(), parsed.Query())
	require.NoError(t, err)
	require.Equal(t, storage.Grant{
		Action: storage.ActionUpload, TenantID: a.TenantID, AttachmentID: a.ID, StoredName: "x.csv", ContentType: "text/csv",
		SizeMax: storage.SizeMax, ExpiresAt: expiresAt,
	}, grant)

	refuse := func(name string, action storage.Action, id string, q url.Values) {
		t.Helper()
		_, err := signer.Verify(action, id, q)
		require.ErrorIs(t, err, fault.Forbidden, name)
	}
	refuse("another method", storage.ActionDownload, a.ID.String(), parsed.Query())
	refuse("another attachment", storage.ActionUpload, pgtest.NewID(t).String(), parsed.Query())
	refuse("no id", storage.ActionUpload, "x", parsed.Query())
	refuse("nothing", storage.ActionUpload, a.ID.String(), url.Values{})
	for name, value := range map[string]string{
		"tenant": pgtest.NewID(t).String(), "name": "y.csv", "type": "text/html", "size": "1073741825", "expires": strconv.FormatInt(expiresAt.Add(time.Hour).Unix(), 10), "signature": "AAAA",
	} {
		q := parsed.Query()
		require.True(t, q.Has(name))
		q.Set(name, value)
		refuse("changed "+name, storage.ActionUpload, a.ID.String(), q)
		q.Del(name)
		refuse("without "+name, storage.ActionUpload, a.ID.String(), q)
		q = parsed.Query()
		q.Add(name, q.Get(name))
		refuse("twice "+name, storage.ActionUpload, a.ID.String(), q)
	}
	other := storage.NewSigner(bytes.Repeat([]byte{2}, 32), "https://example.com", clock)
	_, err = other.Verify(storage.ActionUpload, a.ID.String(), parsed.Query())
	require.ErrorIs(t, err, fault.Forbidden, "another key")

	now = expiresAt.Add(-time.Second)
	_, err = signer.Verify(storage.ActionUpload, a.ID.String(), parsed.Query())
	require.NoError(t, err)
	now = expiresAt
	refuse("expired", storage.ActionUpload, a.ID.String(), parsed.Query())
}
