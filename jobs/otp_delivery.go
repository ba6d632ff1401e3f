package jobs

import (
	"github.com/google/uuid"
	"github.com/riverqueue/river"
)

// OTPDelivery sends the message that carries a one-time password.
type OTPDelivery struct {
	TenantID uuid.UUID `json:"tenant_id"`
	OTPID    uuid.UUID `json:"otp_id"`
}

// Kind names the job.
func (OTPDelivery) Kind() string { return "otp_delivery" }

// InsertOpts puts it on the queue of notifications.
func (OTPDelivery) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueNotification} }
