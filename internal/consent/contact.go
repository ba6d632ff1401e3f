package consent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/mail"
	"regexp"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"github.com/nyaruka/phonenumbers"
	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"

	"tranche/internal/fault"
	"tranche/internal/message"
)

// addressBytesMax is the length of the longest address (RFC 5321, erratum 1690).
const addressBytesMax = 254

// phonePattern is the form of E.164.
var phonePattern = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// contact is the recipient of a code.
type contact struct {
	channel message.Channel
	value   string // an address, or a number in E.164
}

// parseContact reads a contact value. A value that does not fit the channel is a fault.
// Its message states the required form and does not repeat the value.
func parseContact(channel message.Channel, text string) (contact, *fault.Detail) {
	c := contact{channel: channel, value: text}
	if channel == message.Email {
		var ok bool
		if c.value, ok = parseAddress(text); !ok {
			return c, &fault.Detail{Field: "value", Message: "must be an e-mail address of at most 254 characters"}
		}
		return c, nil
	}
	if !phonePattern.MatchString(text) {
		return c, &fault.Detail{Field: "value", Message: "must be a telephone number in the form of E.164: + and up to 15 digits"}
	}
	number, err := phonenumbers.Parse(text, "")
	if err != nil || !phonenumbers.IsPossibleNumber(number) {
		return c, &fault.Detail{Field: "value", Message: "must be a possible telephone number of its country"}
	}
	c.value = phonenumbers.Format(number, phonenumbers.E164)
	return c, nil
}

// parseAddress reads one bare address: no name, no brackets, no invisible characters, and
// a domain with a dot. It returns the canonical form for sending and counting, with the
// domain in IDNA ASCII and the local part in NFC. Otherwise each spelling of a mailbox
// would have a limit of its own.
func parseAddress(text string) (string, bool) {
	if len(text) > addressBytesMax || strings.ContainsAny(text, "<>\"(), ") || strings.ContainsFunc(text, isUnseen) {
		return "", false
	}
	address, err := mail.ParseAddress(text)
	if err != nil || address.Address != text {
		return "", false
	}
	local, domain, _ := strings.Cut(text, "@")
	domain, err = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(true), idna.VerifyDNSLength(true)).ToASCII(domain)
	if err != nil || !isDomain(domain) {
		return "", false
	}
	local = norm.NFC.String(local)
	written := local + "@" + domain
	return written, len(local) <= 64 && len(written) <= addressBytesMax
}

// isDomain reports whether a domain has a dot and does not end like an IP address.
func isDomain(ascii string) bool {
	last := ascii[strings.LastIndexByte(ascii, '.')+1:]
	return last != ascii && strings.Trim(last, "0123456789") != ""
}

// isUnseen reports whether a character is invisible.
func isUnseen(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Z, unicode.Cf)
}

// masked returns the contact as evidence and responses show it.
func (c contact) masked() string {
	if c.channel == message.Email {
		local, domain, _ := strings.Cut(c.value, "@")
		first := []rune(local)[0]
		return string(first) + "***@" + domain
	}
	return c.value[:3] + strings.Repeat("*", len(c.value)-5) + c.value[len(c.value)-2:]
}

// contactHashes returns keyed hashes of a contact within its tenant, for limits and
// evidence. A telephone number has the same hash for SMS and WhatsApp, and an address in
// upper and lower case. There is one hash for each master key; the first is stored.
func (s *Service) contactHashes(tenantID uuid.UUID, c contact) [][]byte {
	kind := "phone"
	if c.channel == message.Email {
		kind = "email"
	}
	hashes := make([][]byte, len(s.contactKeys))
	for i, key := range s.contactKeys {
		hashes[i] = keyed(key, tenantID[:], []byte(kind), []byte(strings.ToLower(c.value)))
	}
	return hashes
}

// keyed returns the HMAC-SHA-256 of parts. The length precedes each part, so that no two
// lists of parts have the same text.
func keyed(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return h.Sum(nil)
}
