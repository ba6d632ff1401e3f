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

// addressBytesMax is the longest address there is (RFC 5321, erratum 1690);
// longer ones are not even parsed.
const addressBytesMax = 254

// phonePattern is the form of E.164.
var phonePattern = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// contact is where a code goes.
type contact struct {
	channel message.Channel
	value   string // an address, or a number in E.164
}

// parseContact reads a contact value. What does not fit the channel is a fault
// of the member value, whose text says nothing but the form that is wanted.
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
		return c, &fault.Detail{Field: "value", Message: "is not a possible telephone number of its country"}
	}
	c.value = phonenumbers.Format(number, phonenumbers.E164)
	return c, nil
}

// parseAddress reads one bare address: no name, no brackets, nothing that cannot
// be seen, and a domain with a dot. It returns it as it is sent to and counted
// by: the domain in the ASCII of IDNA, the rest composed, or one mailbox could
// be written in many ways and would have the limits of many.
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

// isUnseen reports whether a character leaves no mark of its own.
func isUnseen(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Z, unicode.Cf)
}

// masked is the contact as evidence and answers show it.
func (c contact) masked() string {
	if c.channel == message.Email {
		local, domain, _ := strings.Cut(c.value, "@")
		first := []rune(local)[0]
		return string(first) + "***@" + domain
	}
	return c.value[:3] + strings.Repeat("*", len(c.value)-5) + c.value[len(c.value)-2:]
}

// contactHashes identify the contact within its tenant, for limits and
// evidence, without telling it: a telephone number is the same by SMS and by
// WhatsApp, an address in whatever case. There is one by each master key; the
// first is the one to store.
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

// keyed is the HMAC-SHA-256 over parts, each preceded by its length so that no
// two lists of parts read the same.
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
