package consent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/message"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

// SigningRequest is a request for a code. Zero members get the defaults of contract 8.4.
type SigningRequest struct {
	Channel     message.Channel
	Value       string
	TemplateID  string
	CodeSize    int
	ExpiresIn   time.Duration
	AttemptsMax int
	// Recorded, if set, is called in the transaction. Its error rolls back.
	Recorded func(context.Context, pgx.Tx, OTP) error
}

// OTP is a new one-time password.
type OTP struct {
	ID        uuid.UUID
	ExpiresAt time.Time
}

// sealedMessage is the sealed content of a message that is not sent yet.
type sealedMessage struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// StartSigning creates a code and the job that sends it in one transaction. It supersedes
// an open code and withdraws incomplete files, so that the code covers exactly the
// complete ones. Errors:
//   - fault.NotFound: unknown authorization
//   - fault.Invalid: invalid contact, channel or template
//   - fault.Conflict: the authorization is signed, has expired or has had 20 codes
//   - fault.RateLimited: too many codes for the contact or the authorization
func (s *Service) StartSigning(ctx context.Context, tenantID, authorizationID uuid.UUID, actor Actor, r SigningRequest) (OTP, error) {
	r = r.withDefaults()
	to, invalid := parseContact(r.Channel, r.Value)
	if invalid == nil && !s.Senders.Has(r.Channel) {
		invalid = &fault.Detail{Field: "contactMethod", Message: "is not configured: this service cannot send by " + string(r.Channel)}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return OTP{}, err
	}
	otp := OTP{ID: id}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		a, err := s.lockUnsigned(ctx, tx, tenantID, authorizationID, "signed")
		if err != nil {
			return err
		}
		if invalid != nil {
			return fault.InvalidRequest(*invalid)
		}
		if a.isExpired {
			return errAuthorizationExpired()
		}
		template, err := s.Template(ctx, tx, tenantID, r.TemplateID)
		if errors.Is(err, fault.NotFound) {
			return fault.InvalidRequest(fault.Detail{Field: "templateId", Message: "must be the id of a message template"})
		}
		if err != nil {
			return err
		}
		if err := s.checkLimits(ctx, tx, tenantID, authorizationID, to); err != nil {
			return err
		}
		otp.ExpiresAt, err = s.issueTx(ctx, tx, issue{
			tenantID: tenantID, authorizationID: authorizationID, id: id, label: a.Label,
			policyLink: a.PolicyLink, actor: actor, request: r, to: to, template: template,
		})
		if err != nil || r.Recorded == nil {
			return err
		}
		return r.Recorded(ctx, tx, otp)
	})
	return otp, err
}

// InspectSigning finds the faults of a request for a code that the schema of the body
// does not express.
func InspectSigning(members map[string]any) []fault.Detail {
	method, _ := members["contactMethod"].(string)
	value, isText := members["value"].(string)
	if channel := message.Channel(method); isText && slices.Contains(message.Channels(), channel) {
		if _, invalid := parseContact(channel, value); invalid != nil {
			return []fault.Detail{*invalid}
		}
	}
	return nil
}

func (r SigningRequest) withDefaults() SigningRequest {
	r.CodeSize = cmp.Or(r.CodeSize, codeSizeDefault)
	r.ExpiresIn = cmp.Or(r.ExpiresIn, expiresInDefault)
	r.AttemptsMax = cmp.Or(r.AttemptsMax, attemptsDefault)
	return r
}

func errAuthorizationExpired() error {
	return fault.New(fault.Conflict, "the authorization has expired and can no longer be signed")
}

// checkLimits returns an error if a limit of codes is reached. Requests for the same
// contact are serialized, so that each sees the codes of the others.
func (s *Service) checkLimits(ctx context.Context, tx pgx.Tx, tenantID, authorizationID uuid.UUID, to contact) error {
	hashes := s.contactHashes(tenantID, to)
	// The locks are acquired in the same order in all processes, to avoid a deadlock.
	for _, hash := range slices.SortedFunc(slices.Values(hashes), bytes.Compare) {
		if err := s.q.SysOTPContactLock(ctx, tx, queries.SysOTPContactLockParams{TenantID: tenantID, ContactHash: hash}); err != nil {
			return fmt.Errorf("lock a contact: %w", err)
		}
	}
	count, err := s.q.OTPCount(ctx, tx, queries.OTPCountParams{TenantID: tenantID, AuthorizationID: authorizationID})
	if err != nil {
		return fmt.Errorf("count the codes of authorization %s: %w", authorizationID, err)
	}
	if count >= sendsPerAuthorization {
		return fault.New(fault.Conflict, "%d codes have been sent for this authorization, which is the limit; create another authorization", count)
	}
	rows, err := s.q.OTPListRecent(ctx, tx, queries.OTPListRecentParams{TenantID: tenantID, ContactHashes: hashes, AuthorizationID: authorizationID})
	if err != nil || len(rows) == 0 {
		return err
	}
	var recent sends
	for _, row := range rows {
		if row.SameContact {
			recent.contact = append(recent.contact, row.CreatedAt)
		}
		if row.SameAuthorization {
			recent.authorization = append(recent.authorization, row.CreatedAt)
		}
	}
	return recent.check(rows[0].AskedAt)
}

// issue describes a code to create.
type issue struct {
	tenantID, authorizationID, id uuid.UUID
	label, policyLink             string
	actor                         Actor
	request                       SigningRequest
	to                            contact
	template                      Template
}

func (s *Service) issueTx(ctx context.Context, tx pgx.Tx, i issue) (expiresAt time.Time, err error) {
	code, err := newCode(i.request.CodeSize)
	if err != nil {
		return expiresAt, err
	}
	var letter sealedMessage
	letter.To = i.to.value
	letter.Subject, letter.Text = i.template.fill(code, i.label, i.request.ExpiresIn)
	text, err := json.Marshal(letter)
	if err != nil {
		return expiresAt, err
	}
	contactHash, templateHash := s.contactHashes(i.tenantID, i.to)[0], i.template.hash()
	content := map[string]any{
		"otpId": i.id.String(), "contactMethod": string(i.to.channel), "contact": i.to.masked(),
		"contactHash": hex.EncodeToString(contactHash), "templateId": i.template.ID, "templateHash": hex.EncodeToString(templateHash),
		"policyLink": i.policyLink, "maxAttempts": i.request.AttemptsMax, "by": i.actor.content(),
	}
	if err := s.supersedeTx(ctx, tx, i.tenantID, i.authorizationID, content); err != nil {
		return expiresAt, err
	}
	if content["attachments"], err = s.closeAttachmentsTx(ctx, tx, i.tenantID, i.authorizationID); err != nil {
		return expiresAt, err
	}
	expiresAt, err = s.q.OTPInsert(ctx, tx, queries.OTPInsertParams{
		ID: i.id, TenantID: i.tenantID, AuthorizationID: i.authorizationID,
		ContactMethod: string(i.to.channel), ContactMasked: i.to.masked(), ContactHash: contactHash,
		CodeHash:   codeHash(s.peppers[0], i.tenantID, i.authorizationID, i.id, code),
		Message:    s.Keys.Seal(text, passwordTable, i.tenantID.String(), i.id.String()),
		TemplateID: i.template.ID, TemplateHash: templateHash, ClientID: i.actor.ClientID,
		AttemptsMax: int32(i.request.AttemptsMax), ExpiresInSeconds: i.request.ExpiresIn.Seconds(),
	})
	if err != nil {
		return expiresAt, fmt.Errorf("insert code %s: %w", i.id, err)
	}
	content["expiresAt"] = moment(expiresAt)
	if err := s.appendTx(ctx, tx, i.tenantID, i.authorizationID, KindCodeRequested, content); err != nil {
		return expiresAt, err
	}
	if _, err := s.Jobs.InsertTx(ctx, tx, jobs.OTPDelivery{TenantID: i.tenantID, OTPID: i.id}, nil); err != nil {
		return expiresAt, fmt.Errorf("enqueue code %s: %w", i.id, err)
	}
	return expiresAt, nil
}

// supersedeTx ends the open code of an authorization, because another code was requested
// or the content changed. It adds the id of the code to the content of the evidence.
func (s *Service) supersedeTx(ctx context.Context, tx pgx.Tx, tenantID, authorizationID uuid.UUID, content map[string]any) error {
	ended, err := s.q.OTPSupersede(ctx, tx, queries.OTPSupersedeParams{TenantID: tenantID, AuthorizationID: authorizationID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("supersede the code of authorization %s: %w", authorizationID, err)
	}
	content["supersededOtpId"] = ended.String()
	return nil
}

// passwordTable binds sealed messages to their table.
const passwordTable = "one_time_passwords"

// newCode returns a random code of size digits. All codes are equally likely.
func newCode(size int) (string, error) {
	bound := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(size)), nil)
	n, err := rand.Int(rand.Reader, bound)
	if err != nil {
		return "", fmt.Errorf("generate a code: %w", err)
	}
	return fmt.Sprintf("%0*d", size, n), nil
}

// codeHash returns the only trace of a code after its message is wiped. Without the
// pepper, a thief of the database cannot try all codes of ten digits.
func codeHash(pepper []byte, tenantID, authorizationID, otpID uuid.UUID, code string) []byte {
	return keyed(pepper, tenantID[:], authorizationID[:], otpID[:], []byte(code))
}

// isCode compares a code with a hash in constant time.
func (s *Service) isCode(hash []byte, tenantID, authorizationID, otpID uuid.UUID, code string) bool {
	return slices.ContainsFunc(s.peppers, func(pepper []byte) bool {
		return hmac.Equal(hash, codeHash(pepper, tenantID, authorizationID, otpID, code))
	})
}
