package consent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// fieldSeparator separates the fields of the search text. No field contains it.
const fieldSeparator = "\x1f"

// yearMax is the last year that RFC 3339 can express.
const yearMax = 9999

// Content is the part of an authorization that callers write. An empty text is absent.
type Content struct {
	Key           string
	Label         string
	IdentityKey   string
	IdentityValue string
	FormID        string
	BorrowerID    string
	IPAddress     string
	PolicyLink    string
	ExternalID    string
	Tags          []string
	// ExpiresAt may be nil on creation and is then in a year. It is never nil afterwards.
	ExpiresAt *time.Time
}

// Authorization is a consent, signed or not (contract A.2.1).
type Authorization struct {
	Content
	ID           uuid.UUID
	AuthorizedAt *time.Time // nil: not signed
	CreatedAt    time.Time
	UpdatedAt    time.Time
	// HasAttachments says that a complete file is attached.
	HasAttachments bool
}

// Create records an unsigned authorization. Invalid content is fault.Invalid with all of
// its faults. If recorded is set, it is called in the transaction; its error rolls back.
func (s *Service) Create(ctx context.Context, tenantID uuid.UUID, actor Actor, c Content, recorded func(context.Context, pgx.Tx, uuid.UUID) error) (uuid.UUID, error) {
	if c.Label == "" {
		c.Label = c.Key
	}
	if c.IPAddress == "" {
		c.IPAddress = actor.IPAddress
	}
	if details := c.faults(); len(details) > 0 {
		return uuid.Nil, fault.InvalidRequest(details...)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, err
	}
	params := queries.AuthorizationInsertParams{
		ID: id, TenantID: tenantID, Key: c.Key, Label: c.Label, IdentityKey: c.IdentityKey, IdentityValue: c.IdentityValue,
		FormID: queries.Optional(c.FormID), BorrowerID: queries.Optional(c.BorrowerID), IpAddress: c.IPAddress, PolicyLink: queries.Optional(c.PolicyLink),
		ExternalID: queries.Optional(c.ExternalID), Tags: orEmpty(c.Tags), SearchText: c.searchText(), ExpiresAt: c.ExpiresAt,
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := s.q.AuthorizationInsert(ctx, tx, params)
		if err != nil {
			return fmt.Errorf("insert authorization %s: %w", id, err)
		}
		if !row.ExpiresAt.After(row.CreatedAt) {
			return fault.InvalidRequest(inThePast())
		}
		c.ExpiresAt = &row.ExpiresAt
		if err := audit.RecordTx(ctx, tx, tenantID, audit.ConsentCreate, id.String()); err != nil {
			return err
		}
		err = s.appendTx(ctx, tx, tenantID, id, KindCreated, map[string]any{"authorization": c.evidence(), "by": actor.content()})
		if err != nil || recorded == nil {
			return err
		}
		return recorded(ctx, tx, id)
	})
	return id, err
}

func inThePast() fault.Detail {
	return fault.Detail{Field: "expiresAt", Message: "must be in the future"}
}

// Get returns an authorization of the tenant, or fault.NotFound.
func (s *Service) Get(ctx context.Context, tenantID, id uuid.UUID) (*Authorization, error) {
	return s.get(ctx, s.Pool, tenantID, id)
}

func (s *Service) get(ctx context.Context, db queries.DBTX, tenantID, id uuid.UUID) (*Authorization, error) {
	row, err := s.q.AuthorizationGet(ctx, db, queries.AuthorizationGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return nil, readError(err, "get authorization %s", id)
	}
	return fromRow(row), nil
}

// Update changes an unsigned authorization. The function receives the content and returns
// the new one; it must keep key, identity and address. An open code is superseded, so
// that no code signs content that changed after its request. If the content does not
// change, Update does nothing. A signed authorization is fault.Conflict.
func (s *Service) Update(ctx context.Context, tenantID, id uuid.UUID, actor Actor, change func(Content) Content) (changed *Authorization, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		locked, err := s.lockUnsigned(ctx, tx, tenantID, id, "changed")
		if err != nil {
			return err
		}
		c := change(locked.Content)
		details := c.faults()
		if !c.ExpiresAt.Equal(*locked.ExpiresAt) && !c.ExpiresAt.After(locked.now) {
			details = append(details, inThePast())
		}
		if len(details) > 0 {
			return fault.InvalidRequest(details...)
		}
		if reflect.DeepEqual(c.evidence(), locked.evidence()) {
			changed, err = s.get(ctx, tx, tenantID, id)
			return err
		}
		err = s.q.AuthorizationUpdate(ctx, tx, queries.AuthorizationUpdateParams{
			TenantID: tenantID, ID: id, Label: c.Label, FormID: queries.Optional(c.FormID), BorrowerID: queries.Optional(c.BorrowerID),
			PolicyLink: queries.Optional(c.PolicyLink), ExternalID: queries.Optional(c.ExternalID), Tags: orEmpty(c.Tags),
			SearchText: c.searchText(), ExpiresAt: *c.ExpiresAt,
		})
		if err != nil {
			return fmt.Errorf("update authorization %s: %w", id, err)
		}
		content := map[string]any{"authorization": c.evidence(), "by": actor.content()}
		if err := s.supersedeTx(ctx, tx, tenantID, id, content); err != nil {
			return err
		}
		if err := s.appendTx(ctx, tx, tenantID, id, KindChanged, content); err != nil {
			return err
		}
		changed, err = s.get(ctx, tx, tenantID, id)
		return err
	})
	return changed, err
}

// Delete deletes an authorization with its files and all personal data. A tombstone with
// the hashes of its evidence remains.
func (s *Service) Delete(ctx context.Context, tenantID, id uuid.UUID, actor Actor) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := s.lock(ctx, tx, tenantID, id); err != nil {
			return err
		}
		files, err := s.q.AuthorizationAttachmentListAll(ctx, tx, queries.AuthorizationAttachmentListAllParams{TenantID: tenantID, AuthorizationID: id})
		if err != nil {
			return fmt.Errorf("list the attachments of authorization %s: %w", id, err)
		}
		for _, file := range files {
			if err := s.Store.Delete(ctx, tx, tenantID, file); err != nil {
				return err
			}
		}
		if err := s.q.AuthorizationErase(ctx, tx, queries.AuthorizationEraseParams{TenantID: tenantID, ID: id}); err != nil {
			return fmt.Errorf("erase authorization %s: %w", id, err)
		}
		if err := s.q.OTPErase(ctx, tx, queries.OTPEraseParams{TenantID: tenantID, AuthorizationID: id}); err != nil {
			return fmt.Errorf("erase the codes of authorization %s: %w", id, err)
		}
		if err := s.q.EvidenceContentsDelete(ctx, tx, queries.EvidenceContentsDeleteParams{TenantID: tenantID, AuthorizationID: id}); err != nil {
			return fmt.Errorf("delete the contents of the evidence of authorization %s: %w", id, err)
		}
		if err := audit.RecordTx(ctx, tx, tenantID, audit.ConsentDelete, id.String()); err != nil {
			return err
		}
		// The tombstone names the client, without its address, which is personal data.
		return s.appendTx(ctx, tx, tenantID, id, KindDeleted, map[string]any{"by": map[string]any{"clientId": actor.ClientID.String()}})
	})
}

// locked is an authorization whose row is locked until the transaction ends.
type locked struct {
	Content
	authorizedAt *time.Time
	isExpired    bool
	now          time.Time // of the database
}

func (s *Service) lock(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID) (*locked, error) {
	row, err := s.q.AuthorizationLock(ctx, tx, queries.AuthorizationLockParams{TenantID: tenantID, ID: id})
	if err != nil {
		return nil, readError(err, "lock authorization %s", id)
	}
	return &locked{
		Content: Content{
			Key: row.Key, Label: row.Label, IdentityKey: row.IdentityKey, IdentityValue: row.IdentityValue,
			FormID: queries.Value(row.FormID), BorrowerID: queries.Value(row.BorrowerID), IPAddress: row.IpAddress,
			PolicyLink: queries.Value(row.PolicyLink), ExternalID: queries.Value(row.ExternalID), Tags: row.Tags, ExpiresAt: &row.ExpiresAt,
		},
		authorizedAt: row.AuthorizedAt, isExpired: row.IsExpired, now: row.AskedAt,
	}, nil
}

// lockUnsigned is lock, but a signed authorization is fault.Conflict.
func (s *Service) lockUnsigned(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID, action string) (*locked, error) {
	l, err := s.lock(ctx, tx, tenantID, id)
	if err == nil && l.authorizedAt != nil {
		return nil, fault.New(fault.Conflict, "the authorization is signed and can no longer be %s", action)
	}
	return l, err
}

// Inspect finds the faults of an authorization that the schema of the body does not
// express. Absent members have no faults.
func Inspect(members map[string]any) []fault.Detail {
	text := func(name string) string {
		t, _ := members[name].(string)
		return t
	}
	c := Content{
		Key: text("key"), Label: text("label"), IdentityKey: text("identityKey"), IdentityValue: text("identityValue"),
		FormID: text("formId"), BorrowerID: text("borrowerId"), IPAddress: text("ipAddress"),
		PolicyLink: text("policyLink"), ExternalID: text("externalId"),
	}
	tags, _ := members["tags"].([]any)
	for _, tag := range tags {
		t, _ := tag.(string)
		c.Tags = append(c.Tags, t)
	}
	details := c.faults()
	for _, f := range c.texts()[:4] { // key, label and identity; other texts may be blank
		if f.text != "" && strings.TrimSpace(f.text) == "" {
			details = append(details, fault.Detail{Field: f.name, Message: "must not be blank"})
		}
	}
	return details
}

// faults returns the faults of the texts. The schema of the API checks their lengths.
func (c *Content) faults() (details []fault.Detail) {
	add := func(field, text string) {
		details = append(details, fault.Detail{Field: field, Message: text})
	}
	for _, f := range c.texts() {
		if strings.ContainsFunc(f.text, unicode.IsControl) {
			add(f.name, "must not contain control characters")
		}
	}
	for i, tag := range c.Tags {
		if strings.ContainsFunc(tag, unicode.IsControl) {
			add(fmt.Sprintf("tags[%d]", i), "must not contain control characters")
		}
	}
	if address, err := netip.ParseAddr(c.IPAddress); c.IPAddress != "" && (err != nil || address.Zone() != "") {
		add("ipAddress", "must be an IP address")
	}
	if c.ExpiresAt != nil && c.ExpiresAt.UTC().Year() > yearMax {
		add("expiresAt", "must be before the year 10000")
	}
	if link, err := url.Parse(c.PolicyLink); c.PolicyLink != "" && (err != nil || link.Host == "" || link.Scheme != "https" && link.Scheme != "http") {
		add("policyLink", "must be a URL that begins with https:// or http://")
	}
	return details
}

type field struct{ name, text string }

func (c *Content) texts() []field {
	return []field{
		{"key", c.Key},
		{"label", c.Label},
		{"identityKey", c.IdentityKey},
		{"identityValue", c.IdentityValue},
		{"formId", c.FormID},
		{"borrowerId", c.BorrowerID},
		{"policyLink", c.PolicyLink},
		{"externalId", c.ExternalID},
	}
}

// searchText returns the text that searches match (contract 8.8).
func (c *Content) searchText() string {
	fields := append([]string{c.Key, c.Label, c.IdentityValue, c.BorrowerID, c.ExternalID}, c.Tags...)
	return strings.ToLower(strings.Join(fields, fieldSeparator))
}

// evidence returns the content as evidence.
func (c *Content) evidence() map[string]any {
	said := map[string]any{"ipAddress": c.IPAddress, "tags": orEmpty(c.Tags), "expiresAt": moment(*c.ExpiresAt)}
	for _, f := range c.texts() {
		if f.text != "" {
			said[f.name] = f.text
		}
	}
	return said
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func fromRow(row queries.AuthorizationGetRow) *Authorization {
	return &Authorization{
		Content: Content{
			Key: row.Key, Label: row.Label, IdentityKey: row.IdentityKey, IdentityValue: row.IdentityValue,
			FormID: queries.Value(row.FormID), BorrowerID: queries.Value(row.BorrowerID), IPAddress: row.IpAddress,
			PolicyLink: queries.Value(row.PolicyLink), ExternalID: queries.Value(row.ExternalID), Tags: row.Tags, ExpiresAt: &row.ExpiresAt,
		},
		ID: row.ID, AuthorizedAt: row.AuthorizedAt, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt,
		HasAttachments: row.HasAttachments,
	}
}

// Question describes the consent that a workflow needs.
type Question struct {
	Key           string
	IdentityKey   string
	IdentityValue string
	// BorrowerID, if set, excludes authorizations of other borrowers.
	BorrowerID string
}

// Proof is the authorization that matches a Question.
type Proof struct {
	AuthorizationID uuid.UUID
	AuthorizedAt    time.Time
	ExpiresAt       time.Time
}

// Find returns the signed, unexpired authorization that matches a question, or false. Of
// several it returns the one that expires last.
func (s *Service) Find(ctx context.Context, tenantID uuid.UUID, q Question) (Proof, bool, error) {
	row, err := s.q.AuthorizationFindSigned(ctx, s.Pool, queries.AuthorizationFindSignedParams{
		TenantID: tenantID, Key: q.Key, IdentityKey: q.IdentityKey, IdentityValue: q.IdentityValue, BorrowerID: queries.Optional(q.BorrowerID),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Proof{}, false, nil
	}
	if err != nil {
		return Proof{}, false, fmt.Errorf("find an authorization: %w", postgres.Translate(err))
	}
	return Proof{AuthorizationID: row.ID, AuthorizedAt: *row.AuthorizedAt, ExpiresAt: row.ExpiresAt}, true, nil
}
