package pgwire

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
)

// scramExample is the exchange in RFC 7677, section 3.
var scramExample = struct{ firstBare, nonce, serverFirst, clientFinal, serverFinal string }{
	firstBare:   "n=user,r=rOprNGfwEbeRWgbNEkqO",
	nonce:       "rOprNGfwEbeRWgbNEkqO",
	serverFirst: "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
	clientFinal: "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
	serverFinal: "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
}

func exampleClient(t *testing.T) *scramClient {
	t.Helper()
	c := &scramClient{password: "pencil"}
	if err := c.choose([]string{"SCRAM-SHA-256"}); err != nil {
		t.Fatal(err)
	}
	c.nonce, c.firstBare = scramExample.nonce, scramExample.firstBare
	return c
}

func TestSCRAMClientExample(t *testing.T) {
	_, salt, iterations, err := parseServerFirst([]byte(scramExample.serverFirst))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := DeriveKeys("pencil", salt, iterations)
	if err != nil {
		t.Fatal(err)
	}
	withKeys := exampleClient(t)
	withKeys.password, withKeys.keys = "", keys
	for name, c := range map[string]*scramClient{"password": exampleClient(t), "keys": withKeys} {
		t.Run(name, func(t *testing.T) {
			final, err := c.answer([]byte(scramExample.serverFirst))
			if err != nil || string(final) != scramExample.clientFinal {
				t.Fatalf("answer %q, %v", final, err)
			}
			if err := c.finish([]byte(scramExample.serverFinal)); err != nil || !c.verified {
				t.Errorf("finish: %v", err)
			}
		})
	}
}

func TestSCRAMClientRefuses(t *testing.T) {
	other := &Keys{Salt: []byte("another salt"), Iterations: 4096}
	for name, tc := range map[string]struct {
		edit        func(*scramClient)
		serverFirst string
		serverFinal string
		is          error
	}{
		"nonce not ours":         {serverFirst: "r=abc,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"},
		"nonce not extended":     {serverFirst: "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"},
		"no salt":                {serverFirst: "r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096"},
		"no iterations":          {serverFirst: "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0"},
		"iterations as attack":   {serverFirst: "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2147483647"},
		"truncated":              {serverFirst: "r=rOprNGfwEbeRWgbNEkqOx"},
		"keys of other verifier": {edit: func(c *scramClient) { c.keys = other }, serverFirst: scramExample.serverFirst, is: ErrVerifierDiffers},
		"wrong signature":        {serverFirst: scramExample.serverFirst, serverFinal: "v=" + strings.Repeat("A", 43) + "="},
		"error instead":          {serverFirst: scramExample.serverFirst, serverFinal: "e=other-error"},
		"no base64":              {serverFirst: scramExample.serverFirst, serverFinal: "v=?"},
		"final before first":     {serverFinal: scramExample.serverFinal},
	} {
		t.Run(name, func(t *testing.T) {
			c := exampleClient(t)
			if tc.edit != nil {
				tc.edit(c)
			}
			var err error
			if tc.serverFirst != "" {
				_, err = c.answer([]byte(tc.serverFirst))
			}
			if err == nil && tc.serverFinal != "" {
				err = c.finish([]byte(tc.serverFinal))
			}
			if err == nil || c.verified || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v, verified %v", err, c.verified)
			}
		})
	}
}

func TestSCRAMMechanism(t *testing.T) {
	certificate := []*x509.Certificate{{Raw: []byte("x"), SignatureAlgorithm: x509.SHA384WithRSA}}
	both, only := []string{"SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"}, []string{"SCRAM-SHA-256"}
	for name, tc := range map[string]struct {
		client    scramClient
		offer     []string
		mechanism string
		gs2       string
		binding   int
	}{
		"plain":                     {scramClient{}, only, "SCRAM-SHA-256", "n,,", 0},
		"plain, binding offered":    {scramClient{}, both, "SCRAM-SHA-256", "n,,", 0},
		"TLS":                       {scramClient{encrypted: true, certificate: certificate}, both, "SCRAM-SHA-256-PLUS", "p=tls-server-end-point,,", 48},
		"TLS, binding not offered":  {scramClient{encrypted: true, certificate: certificate}, only, "SCRAM-SHA-256", "y,,", 0},
		"TLS, certificate unusable": {scramClient{encrypted: true, certificate: []*x509.Certificate{{}}}, both, "SCRAM-SHA-256", "n,,", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.client
			if err := c.choose(tc.offer); err != nil || c.mechanism != tc.mechanism || c.gs2 != tc.gs2 || len(c.binding) != tc.binding {
				t.Errorf("%s, %q, %d bytes, %v", c.mechanism, c.gs2, len(c.binding), err)
			}
		})
	}
	if err := (&scramClient{}).choose([]string{"OAUTHBEARER"}); err == nil {
		t.Error("an unknown mechanism was accepted")
	}
}

func FuzzSCRAMClient(f *testing.F) {
	f.Add([]byte(scramExample.serverFirst), []byte(scramExample.serverFinal))
	f.Add([]byte("r=,s=,i="), []byte("v="))
	f.Fuzz(func(t *testing.T, first, final []byte) {
		_, salt, _, err := parseServerFirst(first)
		if err != nil {
			return
		}
		// With keys, so that a large iteration count costs nothing.
		_, _, iterations, _ := parseServerFirst(first)
		c := &scramClient{keys: &Keys{Salt: slices.Clone(salt), Iterations: iterations}, gs2: "n,,"}
		c.first()
		c.nonce, c.firstBare = scramExample.nonce, scramExample.firstBare
		if _, err := c.answer(first); err == nil && c.finish(final) == nil && !strings.HasPrefix(string(final), "v=") {
			t.Errorf("accepted %q", final)
		}
	})
}
