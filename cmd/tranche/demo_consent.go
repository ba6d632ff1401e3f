package main

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

// codeLine finds the code in a message: it stands alone on a line.
var codeLine = regexp.MustCompile(`(?m)^([0-9]{6,10})\r?$`)

// codeTimeMax is how long the demo waits for a message with a code.
const codeTimeMax = 30 * time.Second

// demoResult is what the demo reads of an execution result.
type demoResult struct {
	ExecutionID  string
	IsSuccess    bool
	Output       json.RawMessage
	ErrorMessage string
}

// executeWithConsent runs a workflow that asks the bureau about the borrower:
// it refuses until the borrower has signed, which is done here with the code
// that arrives in the demo's mailbox.
func (t *tour) executeWithConsent(ctx context.Context, w demoWorkflow) error {
	result, err := t.execute(ctx, w)
	if err != nil {
		return err
	}
	if !result.IsSuccess {
		t.screen.step("%s is refused without the borrower's consent: %s", w.Alias, result.ErrorMessage)
		if err := t.sign(ctx); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		if result, err = t.execute(ctx, w); err != nil {
			return err
		}
	}
	// The stand-in bureau fails now and then, as real ones do.
	t.screen.step("executed %s with the signed consent; the execution keeps it as evidence:", w.Alias)
	t.screen.json(result.Output)
	return nil
}

func (t *tour) execute(ctx context.Context, w demoWorkflow) (result demoResult, err error) {
	err = t.client.call(ctx, http.MethodPost, "/v1/workflows/"+w.Alias+"/"+w.Version+"/execute", json.RawMessage(testdata.Application), &result)
	return result, err
}

// sign makes the authorization of the sample's borrower and signs it: the
// sequence of section 3.4 of the interface specification.
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
		"tenant": demoTenant, "key": "credit-report", "label": "credit report inquiry", "borrowerId": application.BorrowerID,
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
	letter := filepath.Join(t.mailbox, otp.OTPID+".email.eml")
	code, err := awaitCode(ctx, letter)
	if err != nil {
		return err
	}
	t.screen.step("a code was sent to %s: %s", application.Borrower.Email, letter)
	if err := t.client.call(ctx, http.MethodPost, path+"/signatures/attempt", map[string]any{"otpId": otp.OTPID, "code": code}, nil); err != nil {
		return err
	}
	if err := os.MkdirAll(t.outputs, 0o755); err != nil { // #nosec G301 -- made-up data that anybody may read
		return err
	}
	certificate := filepath.Join(t.outputs, "consent-"+authorization.ID+".pdf")
	if err := t.client.download(ctx, t.client.base+path+"/evidence.pdf", certificate); err != nil {
		return err
	}
	t.screen.step("signed with the code; the certificate of the evidence: %s", certificate)
	return nil
}

// awaitCode reads the code from a message as soon as it is there.
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
