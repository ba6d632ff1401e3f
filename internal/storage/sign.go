package storage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"tranche/internal/fault"
)

// addressTTL is how long a signed address is valid (contract 6.1).
const addressTTL = 15 * time.Minute

// AddressPath is the path of signed addresses below the public URL. The attachment's id
// follows it.
const AddressPath = "/v1/stores/attachments/"

// Action is the HTTP method that an address permits.
type Action string

// The actions.
const (
	ActionUpload   Action = "PUT"
	ActionDownload Action = "GET"
)

// Grant is the permission in a signed address.
type Grant struct {
	Action       Action
	TenantID     uuid.UUID
	AttachmentID uuid.UUID
	StoredName   string
	ContentType  string
	SizeMax      int64 // bytes
	ExpiresAt    time.Time
}

// Signer creates and verifies signed addresses.
type Signer struct {
	key     []byte
	baseURL string
	clock   func() time.Time
}

// NewSigner returns a Signer of addresses below baseURL (PUBLIC_URL). The key has 256
// bits and no other use.
func NewSigner(key []byte, baseURL string, clock func() time.Time) *Signer {
	return &Signer{key: key, baseURL: strings.TrimSuffix(baseURL, "/"), clock: clock}
}

// The parameters of a signed address.
const (
	paramTenant      = "tenant"
	paramStoredName  = "name"
	paramContentType = "type"
	paramSizeMax     = "size"
	paramExpires     = "expires"
	paramSignature   = "signature"
)

// UploadURL returns the address for the upload of an attachment, and its expiry. The
// address accepts the bytes once.
func (s *Signer) UploadURL(a Attachment) (string, time.Time) {
	return s.sign(a, ActionUpload, SizeMax)
}

// DownloadURL returns the address for the download of an attachment, and its expiry.
func (s *Signer) DownloadURL(a Attachment) (string, time.Time) {
	return s.sign(a, ActionDownload, a.Size)
}

func (s *Signer) sign(a Attachment, action Action, sizeMax int64) (string, time.Time) {
	g := Grant{
		Action: action, TenantID: a.TenantID, AttachmentID: a.ID, StoredName: a.StoredName,
		ContentType: a.ContentType, SizeMax: sizeMax,
		ExpiresAt: s.clock().Add(addressTTL).Truncate(time.Second).UTC(),
	}
	q := url.Values{
		paramTenant:      {g.TenantID.String()},
		paramStoredName:  {g.StoredName},
		paramContentType: {g.ContentType},
		paramSizeMax:     {strconv.FormatInt(g.SizeMax, 10)},
		paramExpires:     {strconv.FormatInt(g.ExpiresAt.Unix(), 10)},
		paramSignature:   {base64.RawURLEncoding.EncodeToString(s.mac(g))},
	}
	return s.baseURL + AddressPath + g.AttachmentID.String() + "?" + q.Encode(), g.ExpiresAt
}

// Verify returns the grant of an address. An address that was changed, is for another
// action or has expired is fault.Forbidden.
func (s *Signer) Verify(action Action, attachmentID string, q url.Values) (Grant, error) {
	g, signature, ok := parse(action, attachmentID, q)
	if !ok || !hmac.Equal(signature, s.mac(g)) {
		return Grant{}, fault.New(fault.Forbidden, "the signature of this address is invalid")
	}
	if !s.clock().Before(g.ExpiresAt) {
		return Grant{}, fault.New(fault.Forbidden, "this address has expired; request another one")
	}
	return g, nil
}

func parse(action Action, attachmentID string, q url.Values) (g Grant, signature []byte, ok bool) {
	for _, values := range q {
		if len(values) != 1 {
			return Grant{}, nil, false
		}
	}
	id, errID := uuid.Parse(attachmentID)
	tenant, errTenant := uuid.Parse(q.Get(paramTenant))
	size, errSize := strconv.ParseInt(q.Get(paramSizeMax), 10, 64)
	expires, errExpires := strconv.ParseInt(q.Get(paramExpires), 10, 64)
	signature, errSignature := base64.RawURLEncoding.DecodeString(q.Get(paramSignature))
	for _, err := range []error{errID, errTenant, errSize, errExpires, errSignature} {
		if err != nil {
			return Grant{}, nil, false
		}
	}
	return Grant{
		Action: action, TenantID: tenant, AttachmentID: id, StoredName: q.Get(paramStoredName),
		ContentType: q.Get(paramContentType), SizeMax: size, ExpiresAt: time.Unix(expires, 0).UTC(),
	}, signature, true
}

// mac returns the MAC of all members of the grant. The length precedes each member, so
// that no two grants have the same text.
func (s *Signer) mac(g Grant) []byte {
	h := hmac.New(sha256.New, s.key)
	for _, part := range []string{
		string(g.Action), g.TenantID.String(), g.AttachmentID.String(), g.StoredName, g.ContentType,
		strconv.FormatInt(g.SizeMax, 10), strconv.FormatInt(g.ExpiresAt.Unix(), 10),
	} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}
