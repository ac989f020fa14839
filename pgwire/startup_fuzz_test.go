package pgwire

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func FuzzAccept(f *testing.F) {
	start := append([]byte{0, 0, 0, 18, 0, 3, 0, 0}, "user\x00app\x00\x00"...)
	f.Add(start)
	f.Add(append([]byte{0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f}, start...))
	f.Add([]byte{0, 0, 0, 16, 4, 0xd2, 0x16, 0x2e, 0, 0, 0, 1, 0, 0, 0, 2})
	f.Add([]byte{0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn := &chunkConn{chunks: [][]byte{bytes.Clone(sent)}}
		if len(sent) == 0 {
			conn.chunks = nil
		}
		c, err := Accept(t.Context(), deadlineConn{conn}, &ServerConfig{})
		if err != nil {
			if _, ok := errors.AsType[*Error](err); ok && !bytes.Contains(conn.written(), []byte("SFATAL")) {
				t.Fatalf("%v was not told: %q", err, conn.written())
			}
			return
		}
		if c.Cancel == nil && (c.User == "" || c.Database == "" || len(c.User) > maxNameSize) {
			t.Fatalf("user %q, database %q", c.User, c.Database)
		}
		if c.Cancel != nil && c.Params != nil {
			t.Fatal("both a cancel request and a session")
		}
	})
}

func FuzzOptions(f *testing.F) {
	for _, seed := range []string{"-c work_mem=1MB", `--a-b=c\ d`, "-eS 5 -fs -tpl -d5", "-- x", `\\ -`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, options string) {
		settings, err := ParseOptions(options)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeSyntaxError {
				t.Fatal(err)
			}
			return
		}
		// Written in the plain form, the settings read the same again.
		var plain []string
		for _, s := range settings {
			var escaped strings.Builder
			for _, c := range []byte(s.Name + "=" + s.Value) {
				escaped.WriteByte('\\')
				escaped.WriteByte(c)
			}
			plain = append(plain, "-c "+escaped.String())
		}
		again, err := ParseOptions(strings.Join(plain, "\n"))
		if err != nil || len(again) != len(settings) {
			t.Fatalf("%q: %q, %v", plain, again, err)
		}
		for i := range again {
			if again[i] != settings[i] {
				t.Fatalf("%q, want %q", again[i], settings[i])
			}
		}
	})
}

func FuzzClientMessages(f *testing.F) {
	f.Add("n,,n=,r=abc", "c=biws,r=abc,p=AAAA", false)
	f.Add("y,a=x,n=,r=", ",p=", true)
	f.Add("p=tls-server-end-point,,n=,r=abc", "c=,r=,p=", true)
	verifier, err := BuildVerifier("secret")
	if err != nil {
		f.Fatal(err)
	}
	parsed, err := ParseVerifier(verifier)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, final string, plus bool) {
		s := scramServer{client: &Client{User: "app"}, verifier: parsed, plus: plus}
		if plus {
			s.binding = []byte("binding")
		}
		if s.readClientFirst(first) != nil {
			return
		}
		s.makeServerFirst()
		if _, err := s.readClientFinal(final); err == nil || s.keys != nil {
			t.Fatal("let in without the password")
		}
	})
}

// FuzzSCRAMServer sends anything to the exchange: nobody gets in, since no input knows the nonce.
func FuzzSCRAMServer(f *testing.F) {
	start := append([]byte{0, 0, 0, 18, 0, 3, 0, 0}, "user\x00app\x00\x00"...)
	message := func(body string) []byte { return append([]byte{'p', 0, 0, 0, byte(len(body) + 4)}, body...) }
	const first = "n,,n=,r=fyko+d2lbbFgONRv9qkxdawL"
	initial := message("SCRAM-SHA-256\x00\x00\x00\x00" + string(rune(len(first))) + first)
	f.Add(initial)
	f.Add(append(bytes.Clone(initial), message("c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=")...))
	f.Add(message("SCRAM-SHA-256-PLUS\x00\xff\xff\xff\xff"))
	f.Add([]byte{'p', 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte("Q\x00\x00\x00\x05\x00"))
	keys, err := DeriveKeys("secret", []byte("0123456789abcdef"), 1)
	if err != nil {
		f.Fatal(err)
	}
	verifier := keys.Verifier().String()
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn := &chunkConn{chunks: [][]byte{append(bytes.Clone(start), sent...)}}
		c, err := Accept(t.Context(), deadlineConn{conn}, &ServerConfig{MockSecret: []byte("m")})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []string{verifier, "", "md5abc"} {
			if got, err := AuthenticateSCRAM(t.Context(), c, v); err == nil || got != nil {
				t.Fatalf("%q got in", sent)
			}
		}
	})
}
