package consent

import (
	"time"

	"tranche/internal/fault"
)

// The limits of contract 8.4.
const (
	sendPause             = 60 * time.Second // between two codes to a contact, or for an authorization
	sendsPerContactShort  = 5
	sendsShort            = 10 * time.Minute
	sendsPerContactLong   = 10
	sendsLong             = 24 * time.Hour
	sendsPerAuthorization = 20
	codeSizeDefault       = 6
	expiresInDefault      = 600 * time.Second
	attemptsDefault       = 5
)

// sends are the times of the requests for codes in the last day, newest first.
type sends struct {
	contact       []time.Time // for the same contact
	authorization []time.Time // for the same authorization
}

// nextAt returns the earliest time at which another code may be sent.
func (s sends) nextAt() time.Time {
	var next time.Time
	later := func(t time.Time) {
		if t.After(next) {
			next = t
		}
	}
	for _, sent := range [][]time.Time{s.contact, s.authorization} {
		if len(sent) > 0 {
			later(sent[0].Add(sendPause))
		}
	}
	if len(s.contact) >= sendsPerContactShort {
		later(s.contact[sendsPerContactShort-1].Add(sendsShort))
	}
	if len(s.contact) >= sendsPerContactLong {
		later(s.contact[sendsPerContactLong-1].Add(sendsLong))
	}
	return next
}

// check returns fault.RateLimited if no other code may be sent now. The message is the
// same for all limits, so that it does not reveal whether the contact is known.
func (s sends) check(now time.Time) error {
	wait := s.nextAt().Sub(now)
	if wait <= 0 {
		return nil
	}
	return fault.New(fault.RateLimited, "too many codes have been requested; try again later").WithRetryAfter(wait)
}
