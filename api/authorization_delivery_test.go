package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/message"
	"tranche/internal/pgtest"
	"tranche/internal/server"
	"tranche/jobs"
)

// codeOf returns the code in a message of the gateway.
func codeOf(t *testing.T, m gatewayMessage) string {
	t.Helper()
	found := regexp.MustCompile(`\\n([0-9]{6})\\n`).FindStringSubmatch(m.body)
	require.NotNil(t, found, m.body)
	return found[1]
}

func testGatewayDelivery(t *testing.T, d *desk) {
	t.Helper()
	bySMS := func(to string) map[string]any {
		return map[string]any{"value": to, "contactMethod": "sms", "templateId": "default"}
	}
	sign := func(t *testing.T, to string, tries int) {
		t.Helper()
		s := d.signer(t)
		otpID := s.Post(t, s.path("/signatures"), bySMS(to)).Expect(http.StatusCreated).Text("otpId")
		require.Eventually(t, func() bool {
			d.retryDelivery(t, otpID)
			return len(d.gateway.received(to)) >= tries
		}, 30*time.Second, 10*time.Millisecond)
		received := d.gateway.received(to)
		for _, m := range received {
			require.Equal(t, gatewayMessage{otpID, received[0].body}, m, "a retry sends the same message with the same key")
		}
		s.attempt(t, otpID, codeOf(t, received[0])).Expect(http.StatusAccepted)
		require.Eventually(t, func() bool {
			return s.Get(t, s.path("/signatures")).Text("data[0].providerMessageId") == fmt.Sprintf("SM-%d", tries)
		}, 20*time.Second, 20*time.Millisecond)
		require.Equal(t, to[:3]+"********"+to[11:], s.Get(t, s.path("/signatures")).Text("data[0].contact"), "masked")
	}
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		sign(t, "+525515550101", 1)
	})
	t.Run("fails twice", func(t *testing.T) {
		t.Parallel()
		to := "+525515550102"
		s := d.signer(t)
		d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, try int) {
			if try < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
		})
		otpID := s.Post(t, s.path("/signatures"), bySMS(to)).Expect(http.StatusCreated).Text("otpId")
		require.Eventually(t, func() bool {
			d.retryDelivery(t, otpID)
			return strings.Contains(string(s.Get(t, s.path("/evidence")).Body), `"SM-3"`)
		}, 30*time.Second, 50*time.Millisecond)
		received := d.gateway.received(to)
		require.Len(t, received, 3)
		require.Equal(t, received[0], received[2])
		s.attempt(t, otpID, codeOf(t, received[2])).Expect(http.StatusAccepted)
	})
	t.Run("answers late", func(t *testing.T) {
		t.Parallel()
		to := "+525515550103"
		s := d.signer(t)
		answer := make(chan struct{})
		release := sync.OnceFunc(func() { close(answer) })
		t.Cleanup(release)
		d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, try int) {
			<-answer
			fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
		})
		otpID := s.Post(t, s.path("/signatures"), bySMS(to)).Expect(http.StatusCreated).Text("otpId")
		require.Eventually(t, func() bool { return len(d.gateway.received(to)) == 1 }, 20*time.Second, 10*time.Millisecond)
		// The code is used before the provider answers. The answer is stored anyway.
		s.attempt(t, otpID, codeOf(t, d.gateway.received(to)[0])).Expect(http.StatusAccepted)
		require.Zero(t, s.rows(t, "one_time_passwords", "message IS NOT NULL"), "the message of a used code is deleted")
		require.Empty(t, s.Get(t, s.path("/signatures")).Text("data[0].providerMessageId"))
		release()
		require.Eventually(t, func() bool {
			return s.Get(t, s.path("/signatures")).Text("data[0].providerMessageId") == "SM-1"
		}, 20*time.Second, 20*time.Millisecond)
	})
	t.Run("odd id", func(t *testing.T) {
		t.Parallel()
		to := "+525515550109"
		s := d.signer(t)
		d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, _ int) {
			fmt.Fprintf(w, `{"sid":"\u0000SM\n-%s"}`, strings.Repeat("9", 300))
		})
		s.Post(t, s.path("/signatures"), bySMS(to)).Expect(http.StatusCreated)
		require.Eventually(t, func() bool { return s.recorded(t, "code_sent") == 1 }, 20*time.Second, 20*time.Millisecond)
		require.Len(t, d.gateway.received(to), 1, "an accepted message is not sent again")
		require.Equal(t, "SM-"+strings.Repeat("9", 252), s.evidence(t, "code_sent")["providerMessageId"])
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		to := "+525515550104"
		d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, try int) {
			if try == 1 {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
		})
		sign(t, to, 2)
	})
}

func testRejectedDelivery(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID := s.Post(t, s.path("/signatures"), byEmail("refused@example.com")).Expect(http.StatusCreated).Text("otpId")
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.Get(t, s.path("/evidence")).Body), "delivery_failed")
	}, 20*time.Second, 20*time.Millisecond)
	var isWiped bool
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT message IS NULL FROM one_time_passwords WHERE id = $1`, otpID).Scan(&isWiped))
	require.True(t, isWiped)
}

// An expired code is not sent, and its message is deleted.
func testNeverSentLate(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	to := "+525515550105"
	d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusBadGateway) })
	otpID := s.Post(t, s.path("/signatures"), map[string]any{"value": to, "contactMethod": "sms", "templateId": "default"}).
		Expect(http.StatusCreated).Text("otpId")
	require.Eventually(t, func() bool { return len(d.gateway.received(to)) >= 1 }, 20*time.Second, 10*time.Millisecond)
	pgtest.ExpireOneTimePassword(t, s.Pool, uuid.MustParse(otpID), 0)
	tried := len(d.gateway.received(to))
	require.Eventually(t, func() bool {
		d.retryDelivery(t, otpID)
		return strings.Contains(string(s.Get(t, s.path("/evidence")).Body), "expired before it could be sent")
	}, 30*time.Second, 50*time.Millisecond)
	require.LessOrEqual(t, len(d.gateway.received(to)), tried+1, "at most the attempt in progress")
	var isWiped bool
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT message IS NULL FROM one_time_passwords WHERE id = $1`, otpID).Scan(&isWiped))
	require.True(t, isWiped)
}

// If the job of a message is discarded, the sweep deletes the message.
func testDiscardedDelivery(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	to := "+525515550107"
	d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusBadGateway) })
	otpID := s.Post(t, s.path("/signatures"), map[string]any{"value": to, "contactMethod": "sms", "templateId": "default"}).
		Expect(http.StatusCreated).Text("otpId")
	require.Eventually(t, func() bool {
		tag, err := s.Pool.Exec(t.Context(), `UPDATE river.river_job SET state = 'discarded', finalized_at = now()
			WHERE kind = 'otp_delivery' AND args ->> 'otp_id' = $1 AND state IN ('available', 'retryable')`, otpID)
		return err == nil && tag.RowsAffected() == 1
	}, 30*time.Second, 10*time.Millisecond)
	client, err := jobs.NewClient(s.Pool, jobs.Config{ProcessID: pgtest.NewID(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	sweep := func() {
		t.Helper()
		made, err := client.Insert(t.Context(), jobs.OTPExpiry{}, nil)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			job, err := client.JobGet(t.Context(), made.Job.ID)
			return err == nil && job.State == rivertype.JobStateCompleted
		}, 30*time.Second, 20*time.Millisecond)
	}
	sweep()
	require.Equal(t, 1, s.rows(t, "one_time_passwords", "message IS NOT NULL"), "the code has not expired")
	pgtest.ExpireOneTimePassword(t, s.Pool, uuid.MustParse(otpID), 61*time.Second)
	sweep()
	require.Zero(t, s.rows(t, "one_time_passwords", "message IS NOT NULL"))
	require.Equal(t, "the code expired before it could be sent", s.evidence(t, "delivery_failed")["reason"])
}

// hasty is a sender with a short timeout.
type hasty struct{ message.Sender }

func (h hasty) Send(ctx context.Context, m message.Message) (message.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	return h.Sender.Send(ctx, m)
}

// The provider accepts the message but does not answer.
func TestGatewayTimesOut(t *testing.T) {
	t.Parallel()
	gateway, sms := openGateway(t)
	d := &desk{gateway: gateway, Service: apitest.Start(t, func(c *server.Config) {
		c.Senders = message.Senders{message.SMS: hasty{sms}}
	})}
	s := d.signer(t)
	to := "+525515550108"
	gateway.on(to, func(w http.ResponseWriter, r *http.Request, try int) {
		if try == 1 {
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
	})
	otpID := s.Post(t, s.path("/signatures"), map[string]any{"value": to, "contactMethod": "sms", "templateId": "default"}).
		Expect(http.StatusCreated).Text("otpId")
	require.Eventually(t, func() bool {
		d.retryDelivery(t, otpID)
		return s.recorded(t, "code_sent") == 1
	}, 30*time.Second, 20*time.Millisecond)
	received := gateway.received(to)
	require.Len(t, received, 2)
	require.Equal(t, gatewayMessage{otpID, received[0].body}, received[1], "a retry sends the same message with the same key")
	require.Equal(t, "SM-2", s.evidence(t, "code_sent")["providerMessageId"])
	s.attempt(t, otpID, codeOf(t, received[0])).Expect(http.StatusAccepted)
}

func TestMailbox(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "mail")
	d := &desk{Service: apitest.Start(t, func(c *server.Config) {
		c.Senders = message.Senders{message.WhatsApp: message.Folder{Dir: folder}}
	})}
	s := d.signer(t)
	otpID := s.Post(t, s.path("/signatures"), map[string]any{"value": "+525515550123", "contactMethod": "whatsapp", "templateId": "default"}).
		Expect(http.StatusCreated).Text("otpId")
	var text []byte
	require.Eventually(t, func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(folder, otpID+".whatsapp.txt"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	s.attempt(t, otpID, lineOfDigits.FindStringSubmatch(string(text))[1]).Expect(http.StatusAccepted)
}
