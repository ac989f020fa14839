package pgwire

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	scramSHA256     = "SCRAM-SHA-256"
	scramSHA256Plus = "SCRAM-SHA-256-PLUS"
	// A hostile server could ask for so much hashing that it is a denial of service.
	maxSCRAMIterations = 10_000_000
)

// ErrVerifierDiffers is a node whose verifier of the role is not the one that the client proved
// itself against, so that the client's key cannot work there.
var ErrVerifierDiffers = errors.New("the node stores another SCRAM verifier for this role")

// scramClient is the client's half of SCRAM-SHA-256 (RFC 5802, 7677), with a password or with the
// keys recovered from somebody who knew it.
type scramClient struct {
	password    string
	keys        *Keys
	encrypted   bool
	certificate []*x509.Certificate

	mechanism   string
	gs2         string
	binding     []byte // what the channel-binding attribute carries behind the gs2 header
	firstBare   string
	nonce       string
	authMessage string
	serverKey   [32]byte
	verified    bool
}

// choose picks a mechanism: with channel binding whenever both sides can.
func (c *scramClient) choose(mechanisms []string) error {
	if c.encrypted && slices.Contains(mechanisms, scramSHA256Plus) {
		if hash := endPointHash(c.certificate); hash != nil {
			c.mechanism, c.gs2, c.binding = scramSHA256Plus, "p=tls-server-end-point,,", hash
			return nil
		}
	}
	if !slices.Contains(mechanisms, scramSHA256) {
		return fmt.Errorf("the server offers only the authentication mechanisms %s", strings.Join(mechanisms, ", "))
	}
	c.mechanism, c.gs2 = scramSHA256, "n,,"
	if c.encrypted && !slices.Contains(mechanisms, scramSHA256Plus) {
		// "We could, but you did not offer it": a server that did offer it notices the tampering.
		c.gs2 = "y,,"
	}
	return nil
}

// endPointHash is tls-server-end-point of RFC 5929; nil when the signature names no usable hash.
func endPointHash(chain []*x509.Certificate) []byte {
	if len(chain) == 0 {
		return nil
	}
	cert := chain[0]
	switch cert.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1,
		x509.SHA256WithRSA, x509.DSAWithSHA256, x509.ECDSAWithSHA256, x509.SHA256WithRSAPSS:
		sum := sha256.Sum256(cert.Raw)
		return sum[:]
	case x509.SHA384WithRSA, x509.ECDSAWithSHA384, x509.SHA384WithRSAPSS:
		sum := sha512.Sum384(cert.Raw)
		return sum[:]
	case x509.SHA512WithRSA, x509.ECDSAWithSHA512, x509.SHA512WithRSAPSS:
		sum := sha512.Sum512(cert.Raw)
		return sum[:]
	default:
		return nil
	}
}

// first is the client-first message. The name is empty: PostgreSQL takes it from the startup.
func (c *scramClient) first() []byte {
	var raw [18]byte
	_, _ = rand.Read(raw[:])
	c.nonce = base64.StdEncoding.EncodeToString(raw[:])
	c.firstBare = "n=,r=" + c.nonce
	return []byte(c.gs2 + c.firstBare)
}

// answer turns the server-first message into the client-final one.
func (c *scramClient) answer(serverFirst []byte) ([]byte, error) {
	nonce, salt, iterations, err := parseServerFirst(serverFirst)
	if err != nil {
		return nil, err
	}
	if c.nonce == "" || c.authMessage != "" {
		return nil, errors.New("SASL message out of order")
	}
	if !strings.HasPrefix(nonce, c.nonce) || len(nonce) == len(c.nonce) {
		return nil, errors.New("the server's SCRAM nonce does not extend ours")
	}
	clientKey, err := c.clientKey(salt, iterations)
	if err != nil {
		return nil, err
	}
	channel := append([]byte(c.gs2), c.binding...)
	withoutProof := "c=" + base64.StdEncoding.EncodeToString(channel) + ",r=" + nonce
	c.authMessage = c.firstBare + "," + string(serverFirst) + "," + withoutProof
	storedKey := sha256.Sum256(clientKey[:])
	signature := hmacSHA256(storedKey[:], c.authMessage)
	var proof [32]byte
	subtle.XORBytes(proof[:], clientKey[:], signature[:])
	return []byte(withoutProof + ",p=" + base64.StdEncoding.EncodeToString(proof[:])), nil
}

// clientKey finds the key for this salt and remembers the matching server key.
func (c *scramClient) clientKey(salt []byte, iterations int) ([32]byte, error) {
	if c.keys != nil {
		if !bytes.Equal(salt, c.keys.Salt) || iterations != c.keys.Iterations {
			return [32]byte{}, fmt.Errorf("%w: set the role's password again through pgshoal, which stores the same verifier on every node", ErrVerifierDiffers)
		}
		c.serverKey = c.keys.ServerKey
		return c.keys.ClientKey, nil
	}
	keys, err := DeriveKeys(c.password, salt, iterations)
	if err != nil {
		return [32]byte{}, err
	}
	c.serverKey = keys.ServerKey
	return keys.ClientKey, nil
}

// finish checks the server's signature: it proves that the server knows the role's verifier.
func (c *scramClient) finish(serverFinal []byte) error {
	if c.authMessage == "" {
		return errors.New("SASL message out of order")
	}
	attr, value, _ := strings.Cut(string(serverFinal), "=")
	if attr != "v" {
		return fmt.Errorf("the server refused SCRAM: %q", serverFinal)
	}
	value, _, _ = strings.Cut(value, ",")
	got, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return errors.New("the server's SCRAM signature is malformed")
	}
	want := hmacSHA256(c.serverKey[:], c.authMessage)
	if !hmac.Equal(got, want[:]) {
		return errors.New("the server's SCRAM signature is wrong: it does not know this role's verifier")
	}
	c.verified = true
	return nil
}

// parseServerFirst reads "r=nonce,s=salt,i=iterations", which may be followed by extensions.
func parseServerFirst(msg []byte) (nonce string, salt []byte, iterations int, err error) {
	parts := strings.Split(string(msg), ",")
	malformed := fmt.Errorf("malformed SCRAM message %q", msg)
	if len(parts) < 3 || !strings.HasPrefix(parts[0], "r=") || !strings.HasPrefix(parts[1], "s=") || !strings.HasPrefix(parts[2], "i=") {
		return "", nil, 0, malformed
	}
	if salt, err = base64.StdEncoding.DecodeString(parts[1][2:]); err != nil || len(salt) == 0 {
		return "", nil, 0, malformed
	}
	if iterations, err = strconv.Atoi(parts[2][2:]); err != nil || iterations < 1 {
		return "", nil, 0, malformed
	}
	if iterations > maxSCRAMIterations {
		return "", nil, 0, fmt.Errorf("the server asks for %d SCRAM iterations", iterations)
	}
	return parts[0][2:], salt, iterations, nil
}
