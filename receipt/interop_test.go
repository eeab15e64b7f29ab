package receipt_test

import (
	"encoding/json"
	"testing"

	testresult "github.com/in-toto/attestation/go/predicates/test_result/v0"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	"google.golang.org/protobuf/encoding/protojson"

	"striatum/receipt"
	"striatum/receipt/receipttest"
)

// TestInTotoParsesTheStatementStrictly holds every class of receipt against
// the published Go types, whose JSON parser refuses unknown fields.
func TestInTotoParsesTheStatementStrictly(t *testing.T) {
	failed := receipttest.Facts()
	failed.Executions[0] = receipttest.Execution(receipt.Fail)
	failed.Inputs.GitCommit = receipttest.Digest("commit")[:40]
	failed.Incidents = []receipt.Incident{{Code: "toolchain_drift", Effect: receipt.MakesIndeterminate, Detail: "é \u2028 \x01"}}
	failed.Census.SkippedTests = receipt.NewList([]string{"example.com/m TestSkip"})
	bare := receipttest.Facts()
	bare.Census, bare.Compile, bare.Executions = nil, nil, nil
	bare.Inputs.ManifestSHA256 = ""
	for name, facts := range map[string]receipt.Receipt{"asserted": receipttest.Facts(), "failed": failed, "bare": bare} {
		t.Run(name, func(t *testing.T) {
			env, sealed := receipttest.Sign(t, facts, receipttest.Key(t, 1))
			var st intoto.Statement
			if err := protojson.Unmarshal(payloadOf(t, env), &st); err != nil {
				t.Fatal(err)
			}
			if got := st.GetSubject()[0].GetDigest()["gitTree"]; got != facts.Inputs.TreeSHA256 {
				t.Errorf("subject %s", got)
			}
			// in-toto's specification allows SHA-256 object ids under gitTree; the
			// Validate method of its Go types v1.2.0 knows those of SHA-1 only.
			delete(st.GetSubject()[0].GetDigest(), "gitTree")
			if len(st.GetSubject()[0].GetDigest()) > 0 {
				if err := st.Validate(); err != nil {
					t.Error(err)
				}
			}
			raw, err := protojson.Marshal(st.GetPredicate())
			if err != nil {
				t.Fatal(err)
			}
			var p testresult.TestResult
			if err := protojson.Unmarshal(raw, &p); err != nil {
				t.Fatal(err)
			}
			if p.GetResult() == "" {
				t.Error("no result")
			}
			body := p.GetConfiguration()[0]
			if body.GetDigest()["sha256"] != sealed.SealDigest || body.GetAnnotations().GetFields()["seal_digest"].GetStringValue() != sealed.SealDigest {
				t.Errorf("configuration[0] is %v", body)
			}
		})
	}
}

func TestSecureSystemsLibVerifiesAReceipt(t *testing.T) {
	k := receipttest.Key(t, 1)
	env, _ := receipttest.Sign(t, receipttest.Facts(), k)
	for seed, want := range map[byte]bool{1: true, 2: false} {
		sslibKey, err := signerverifier.LoadKey(receipttest.Key(t, seed).Public().PEM())
		if err != nil {
			t.Fatal(err)
		}
		sv, err := signerverifier.NewECDSASignerVerifierFromSSLibKey(sslibKey)
		if err != nil {
			t.Fatal(err)
		}
		v, err := dsse.NewEnvelopeVerifier(fingerprintID{sv})
		if err != nil {
			t.Fatal(err)
		}
		var e dsse.Envelope
		if err := json.Unmarshal(env, &e); err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(t.Context(), &e); (err == nil) != want {
			t.Errorf("key %d: %v, want accepted: %t", seed, err, want)
		}
	}
}

// fingerprintID lets dsse compute the key id, as it does for most callers.
type fingerprintID struct {
	*signerverifier.ECDSASignerVerifier
}

func (fingerprintID) KeyID() (string, error) { return "", nil }
