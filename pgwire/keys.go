package pgwire

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// scramIterations and scramSaltSize are PostgreSQL's defaults.
	scramIterations = 4096
	scramSaltSize   = 16
	// verifierPrefix begins every SCRAM secret in pg_authid.
	verifierPrefix = "SCRAM-SHA-256$"
)

// ErrNotVerifier is a stored secret that is not a SCRAM-SHA-256 verifier, an md5 hash for example.
var ErrNotVerifier = errors.New("pgwire: not a SCRAM-SHA-256 verifier")

// Keys are what SCRAM derives from a password. Who holds ClientKey can log in as the role
// wherever the verifier with the same salt is stored, so it is as secret as the password.
type Keys struct {
	ClientKey, ServerKey, StoredKey [32]byte

	Salt       []byte
	Iterations int
}

// DeriveKeys computes the keys of a password, prepared with SASLprep as PostgreSQL does it.
func DeriveKeys(password string, salt []byte, iterations int) (*Keys, error) {
	salted, err := pbkdf2.Key(sha256.New, saslPrep(password), salt, iterations, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("pgwire: derive keys: %w", err)
	}
	k := &Keys{Salt: salt, Iterations: iterations}
	k.ClientKey = hmacSHA256(salted, "Client Key")
	k.ServerKey = hmacSHA256(salted, "Server Key")
	k.StoredKey = sha256.Sum256(k.ClientKey[:])
	return k, nil
}

// Verifier is the part of the keys that a server stores.
func (k *Keys) Verifier() Verifier {
	return Verifier{Iterations: k.Iterations, Salt: k.Salt, StoredKey: k.StoredKey, ServerKey: k.ServerKey}
}

// Verifier is a parsed SCRAM-SHA-256 secret: enough to check a login, not enough to make one.
type Verifier struct {
	Iterations           int
	Salt                 []byte
	StoredKey, ServerKey [32]byte
}

// BuildVerifier makes the secret that PostgreSQL would store for password, with a fresh salt.
func BuildVerifier(password string) (string, error) {
	salt := make([]byte, scramSaltSize)
	rand.Read(salt)
	keys, err := DeriveKeys(password, salt, scramIterations)
	if err != nil {
		return "", err
	}
	return keys.Verifier().String(), nil
}

// ParseVerifier reads "SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>".
func ParseVerifier(secret string) (Verifier, error) {
	var v Verifier
	rest, ok := strings.CutPrefix(secret, verifierPrefix)
	if !ok {
		return v, ErrNotVerifier
	}
	head, tail, ok := strings.Cut(rest, "$")
	iterations, salt, ok2 := strings.Cut(head, ":")
	stored, server, ok3 := strings.Cut(tail, ":")
	if !ok || !ok2 || !ok3 {
		return v, ErrNotVerifier
	}
	n, err := strconv.ParseInt(iterations, 10, 32)
	if err != nil || n < 1 {
		return v, fmt.Errorf("%w: invalid iteration count", ErrNotVerifier)
	}
	v.Iterations = int(n)
	if v.Salt, err = base64.StdEncoding.Strict().DecodeString(salt); err != nil {
		return Verifier{}, fmt.Errorf("%w: invalid salt", ErrNotVerifier)
	}
	if !decodeKey(&v.StoredKey, stored) || !decodeKey(&v.ServerKey, server) {
		return Verifier{}, fmt.Errorf("%w: invalid key", ErrNotVerifier)
	}
	return v, nil
}

// String is the form that is stored in pg_authid.
func (v Verifier) String() string {
	b64 := base64.StdEncoding.EncodeToString
	return verifierPrefix + strconv.Itoa(v.Iterations) + ":" + b64(v.Salt) + "$" + b64(v.StoredKey[:]) + ":" + b64(v.ServerKey[:])
}

func decodeKey(key *[32]byte, text string) bool {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	return err == nil && copy(key[:], raw) == len(key) && len(raw) == len(key)
}

func hmacSHA256(key []byte, text string) (sum [32]byte) {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	mac.Sum(sum[:0])
	return sum
}
