package jobs

import "github.com/riverqueue/river"

// OTPExpiry wipes the messages of one-time passwords that expired unsent.
type OTPExpiry struct{}

// Kind names the job.
func (OTPExpiry) Kind() string { return "otp_expiry" }

// InsertOpts puts it on the maintenance queue.
func (OTPExpiry) InsertOpts() river.InsertOpts { return river.InsertOpts{Queue: QueueMaintenance} }
