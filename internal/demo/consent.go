package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"tranche/testdata"
)

// codeLine matches the code in a message: a line of digits.
var codeLine = regexp.MustCompile(`(?m)^([0-9]{6,10})\r?$`)

// codeTimeMax limits the wait for a message with a code.
const codeTimeMax = 30 * time.Second

// result holds the members of an execution result that the demo uses.
type result struct {
	ExecutionID  string
	IsSuccess    bool
	Output       json.RawMessage
	ErrorMessage string
}

// executeWithConsent executes a workflow that asks the bureau about the borrower. The
// workflow fails until the borrower has signed. The demo signs with the code that it
// finds in its mail directory.
func (t *tour) executeWithConsent(ctx context.Context, w workflow) error {
	executed, err := t.execute(ctx, w)
	if err != nil {
		return err
	}
	if !executed.IsSuccess {
		t.demo.screen.step("%s fails without the borrower's consent: %s", w.Alias, executed.ErrorMessage)
		if err := t.sign(ctx); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		if executed, err = t.execute(ctx, w); err != nil {
			return err
		}
	}
	t.demo.screen.step("executed %s with the signed consent; the execution keeps it as evidence:", w.Alias)
	t.demo.screen.json(executed.Output)
	return nil
}

func (t *tour) execute(ctx context.Context, w workflow) (executed result, err error) {
	err = t.client.call(ctx, http.MethodPost, "/v1/workflows/"+w.Alias+"/"+w.Version+"/execute", json.RawMessage(testdata.Application), &executed)
	return executed, err
}

// sign creates the authorization of the sample's borrower and signs it (contract A.3.4).
func (t *tour) sign(ctx context.Context) error {
	var application struct {
		BorrowerID string
		Borrower   struct{ Email string }
	}
	if err := json.Unmarshal(testdata.Application, &application); err != nil {
		return err
	}
	var authorization struct{ ID string }
	err := t.client.call(ctx, http.MethodPost, "/v1/authorizations", map[string]any{
		"tenant": tenantSlug, "key": "credit-report", "label": "credit report inquiry", "borrowerId": application.BorrowerID,
		"identityKey": "borrowerId", "identityValue": application.BorrowerID,
	}, &authorization)
	if err != nil {
		return err
	}
	path := "/v1/authorizations/" + authorization.ID
	var otp struct{ OTPID string }
	err = t.client.call(ctx, http.MethodPost, path+"/signatures", map[string]any{
		"value": application.Borrower.Email, "contactMethod": "email", "templateId": "default",
	}, &otp)
	if err != nil {
		return err
	}
	letter := filepath.Join(t.demo.MailDir(), otp.OTPID+".email.eml")
	code, err := awaitCode(ctx, letter)
	if err != nil {
		return err
	}
	t.demo.screen.step("sent a code to %s: %s", application.Borrower.Email, letter)
	if err := t.client.call(ctx, http.MethodPost, path+"/signatures/attempt", map[string]any{"otpId": otp.OTPID, "code": code}, nil); err != nil {
		return err
	}
	if err := os.MkdirAll(t.outputs, 0o755); err != nil { // #nosec G301 -- fictitious data
		return err
	}
	certificate := filepath.Join(t.outputs, "consent-"+authorization.ID+".pdf")
	if err := t.client.download(ctx, t.client.base+path+"/evidence.pdf", certificate); err != nil {
		return err
	}
	t.demo.screen.step("signed with the code; the evidence certificate: %s", certificate)
	return nil
}

// awaitCode waits for a message and returns its code.
func awaitCode(ctx context.Context, file string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, codeTimeMax)
	defer cancel()
	for {
		text, err := os.ReadFile(file)
		if err == nil {
			if found := codeLine.FindSubmatch(text); found != nil {
				return string(found[1]), nil
			}
			return "", errors.New("the message has no code")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return "", fmt.Errorf("wait for the message: %w", err)
		}
	}
}
