package pgwire

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// maxSASLMessage is PostgreSQL's PG_MAX_SASL_MESSAGE_LENGTH.
	maxSASLMessage = 1024
	// scramNonceSize is the raw size of PostgreSQL's part of the nonce.
	scramNonceSize = 18
)

// AuthenticateSCRAM checks the client's password against verifier, a role's secret in pg_authid,
// and recovers the ClientKey from the proof: with it a router can log in to the nodes as that
// same role without ever seeing the password. An unknown role has the verifier "": it (and a
// secret of another kind) gets the same exchange with a made-up salt and then the same error as a
// wrong password. On success the last SASL message is pending in the stream.
func AuthenticateSCRAM(ctx context.Context, c *Client, verifier string) (*Keys, error) {
	s := scramServer{client: c, binding: c.endPoint}
	var err error
	if s.verifier, err = ParseVerifier(verifier); err != nil {
		s.doomed = true
		s.verifier = mockVerifier(c.config.mockSecret(), c.User)
	}
	if err := c.authenticate(ctx, s.run); err != nil {
		return nil, err
	}
	return s.keys, nil
}

// mockVerifier makes a verifier that nobody has the password of. The salt depends on the name, as
// a real one would: asking twice shows the same.
func mockVerifier(secret []byte, user string) Verifier {
	mac := hmacSHA256(secret, user)
	return Verifier{Iterations: scramIterations, Salt: mac[:scramSaltSize]}
}

// scramServer is one exchange of RFC 5802 with PostgreSQL's restrictions.
type scramServer struct {
	client   *Client
	verifier Verifier
	doomed   bool   // fails whatever the proof is
	binding  []byte // channel binding data, nil when not offered
	keys     *Keys

	plus        bool   // the client chose the mechanism with channel binding
	gs2         string // the client's channel binding flag with its commas
	clientFirst string // client-first-message-bare
	serverFirst string
	nonce       string
}

func (s *scramServer) run() error {
	first, err := s.initial()
	if err != nil {
		return err
	}
	if err := s.readClientFirst(first); err != nil {
		return err
	}
	s.makeServerFirst()
	if err := s.challenge(s.serverFirst); err != nil {
		return err
	}
	final, err := s.response()
	if err != nil {
		return err
	}
	signature, err := s.readClientFinal(string(final))
	if err != nil {
		return err
	}
	out := s.client.Stream.Out()
	*out = appendAuth(*out, authSASLFinal, []byte("v="+base64.StdEncoding.EncodeToString(signature[:])))
	return nil
}

// initial offers the mechanisms and returns the client's first message.
func (s *scramServer) initial() (string, error) {
	var mechanisms []byte
	if s.binding != nil {
		mechanisms = appendCString(mechanisms, scramSHA256Plus)
	}
	mechanisms = append(appendCString(mechanisms, scramSHA256), 0)
	stream := s.client.Stream
	*stream.Out() = appendAuth(*stream.Out(), authSASL, mechanisms)
	if err := stream.Flush(); err != nil {
		return "", err
	}
	body, err := s.response()
	if err != nil {
		return "", err
	}
	mechanism, rest, ok := bytes.Cut(body, []byte{0})
	r := reader{msg: rest}
	size := r.int32()
	switch string(mechanism) {
	case scramSHA256:
	case scramSHA256Plus:
		s.plus = s.binding != nil
		ok = ok && s.plus
	default:
		ok = false
	}
	if !ok {
		return "", Fatalf(CodeProtocolViolation, "client selected an invalid SASL authentication mechanism")
	}
	if size == -1 {
		// Without an initial response the client wants to be asked for it.
		if err := s.challenge(""); err != nil {
			return "", err
		}
		data, err := s.response()
		return string(data), err
	}
	data := r.bytes(int(size))
	if err := r.end(); err != nil {
		return "", asFatal(err)
	}
	return string(data), nil
}

func (s *scramServer) challenge(text string) error {
	stream := s.client.Stream
	*stream.Out() = appendAuth(*stream.Out(), authSASLContinue, []byte(text))
	return stream.Flush()
}

// response reads the body of the client's next message.
func (s *scramServer) response() ([]byte, error) {
	typ, msg, err := s.client.Stream.NextMax(maxSASLMessage + 4)
	if err != nil {
		if errors.Is(err, ErrMessageSize) {
			return nil, Fatalf(CodeProtocolViolation, "invalid SASL response").WithDetail("%s", err)
		}
		return nil, err
	}
	if typ != 'p' {
		return nil, Fatalf(CodeProtocolViolation, "expected SASL response, got message type %d", typ)
	}
	return msg[5:], nil
}

// readClientFirst reads "gs2-flag,,n=user,r=nonce". The user name in it is ignored: the one of the
// startup packet counts.
func (s *scramServer) readClientFirst(message string) error {
	if err := checkSCRAM(message); err != nil {
		return err
	}
	rest, err := s.readBindingFlag(message)
	if err != nil {
		return err
	}
	// Here an authorization identity would stand.
	if strings.HasPrefix(rest, "a") {
		return Fatalf(CodeFeatureNotSupported, "client uses authorization identity, but it is not supported")
	}
	bare, ok := strings.CutPrefix(rest, ",")
	if !ok {
		return errSCRAM("Unexpected attribute \"%s\" in client-first-message.", firstChar(rest))
	}
	if strings.HasPrefix(bare, "m") {
		return Fatalf(CodeFeatureNotSupported, "client requires an unsupported SCRAM extension")
	}
	s.gs2, s.clientFirst = message[:len(message)-len(bare)], bare
	_, rest, err = readAttribute(bare, 'n')
	if err != nil {
		return err
	}
	s.nonce, _, err = readAttribute(rest, 'r')
	if err != nil {
		return err
	}
	if strings.ContainsFunc(s.nonce, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return Fatalf(CodeProtocolViolation, "non-printable characters in SCRAM nonce")
	}
	return nil
}

// readBindingFlag reads the client's word about channel binding up to its comma.
func (s *scramServer) readBindingFlag(message string) (rest string, err error) {
	flag := firstChar(message)
	switch {
	case flag == "'p'" && !s.plus:
		return "", errSCRAM("The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.")
	case flag == "'p'":
		kind, rest, err := readAttribute(message, 'p')
		if err == nil && kind != "tls-server-end-point" {
			err = Fatalf(CodeProtocolViolation, "unsupported SCRAM channel-binding type \"%s\"", strings.ToValidUTF8(kind, "?"))
		}
		return rest, err
	case flag != "'n'" && flag != "'y'":
		return "", errSCRAM("Unexpected channel-binding flag \"%s\".", flag)
	case s.plus:
		return "", errSCRAM("The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.")
	case flag == "'y'" && s.binding != nil:
		// Somebody in between took the mechanism out of our offer.
		return "", Fatalf(CodeInvalidAuthorization, "SCRAM channel binding negotiation error").
			WithDetail("The client supports SCRAM channel binding but thinks the server does not.  However, this server does support channel binding.")
	case firstChar(message[1:]) != "','":
		return "", errSCRAM("Comma expected, but found character \"%s\".", firstChar(message[1:]))
	}
	return message[2:], nil
}

// readAttribute reads "name=value" up to the next comma.
func readAttribute(text string, name byte) (value, rest string, err error) {
	if text == "" || text[0] != name {
		return "", "", errSCRAM("Expected attribute \"%c\" but found \"%s\".", name, firstChar(text))
	}
	if len(text) < 2 || text[1] != '=' {
		return "", "", errSCRAM("Expected character \"=\" for attribute \"%c\".", name)
	}
	value, rest, _ = strings.Cut(text[2:], ",")
	return value, rest, nil
}

// firstChar is text's first character in a form that is fit for a message, as PostgreSQL writes it.
func firstChar(text string) string {
	switch {
	case text == "":
		return "0x00"
	case text[0] >= 0x21 && text[0] <= 0x7e:
		return "'" + text[:1] + "'"
	}
	return fmt.Sprintf("0x%02x", text[0])
}

func (s *scramServer) makeServerFirst() {
	raw := make([]byte, scramNonceSize)
	rand.Read(raw)
	b64 := base64.StdEncoding.EncodeToString
	s.nonce += b64(raw)
	s.serverFirst = "r=" + s.nonce + ",s=" + b64(s.verifier.Salt) + ",i=" + strconv.Itoa(s.verifier.Iterations)
}

// readClientFinal reads "c=binding,r=nonce,p=proof", checks all three and returns the signature
// that proves to the client that this side knows the verifier.
func (s *scramServer) readClientFinal(message string) (signature [32]byte, err error) {
	if err := checkSCRAM(message); err != nil {
		return signature, err
	}
	at := strings.LastIndex(message, ",p=")
	if at < 0 {
		return signature, errSCRAM("Proof not found in client-final-message.")
	}
	withoutProof := message[:at]
	proof, err := base64.StdEncoding.DecodeString(message[at+len(",p="):])
	if err != nil || len(proof) != sha256.Size {
		return signature, errSCRAM("Malformed proof in client-final-message.")
	}
	binding, rest, _ := strings.Cut(withoutProof, ",")
	expected := append([]byte(s.gs2), s.bindingData()...)
	if subtle.ConstantTimeCompare([]byte(binding), []byte("c="+base64.StdEncoding.EncodeToString(expected))) != 1 {
		if s.plus {
			return signature, Fatalf(CodeInvalidAuthorization, "SCRAM channel binding check failed")
		}
		return signature, Fatalf(CodeProtocolViolation, "unexpected SCRAM channel-binding attribute in client-final-message")
	}
	attribute, _, _ := strings.Cut(rest, ",")
	if subtle.ConstantTimeCompare([]byte(attribute), []byte("r="+s.nonce)) != 1 {
		return signature, Fatalf(CodeProtocolViolation, "invalid SCRAM response").WithDetail("Nonce does not match.")
	}
	return s.checkProof(s.clientFirst+","+s.serverFirst+","+withoutProof, proof)
}

func (s *scramServer) bindingData() []byte {
	if s.plus {
		return s.binding
	}
	return nil
}

// checkProof recovers ClientKey = proof XOR ClientSignature; it is right when its hash is the
// stored key. A doomed exchange does the same work before it fails.
func (s *scramServer) checkProof(authMessage string, proof []byte) (signature [32]byte, err error) {
	keys := &Keys{
		ServerKey:  s.verifier.ServerKey,
		StoredKey:  s.verifier.StoredKey,
		Salt:       s.verifier.Salt,
		Iterations: s.verifier.Iterations,
	}
	clientSignature := hmacSHA256(s.verifier.StoredKey[:], authMessage)
	subtle.XORBytes(keys.ClientKey[:], proof, clientSignature[:])
	stored := sha256.Sum256(keys.ClientKey[:])
	if !hmac.Equal(stored[:], s.verifier.StoredKey[:]) || s.doomed {
		return signature, errPassword(s.client.User)
	}
	s.keys = keys
	return hmacSHA256(s.verifier.ServerKey[:], authMessage), nil
}

func checkSCRAM(message string) error {
	switch {
	case message == "":
		return errSCRAM("The message is empty.")
	case strings.ContainsRune(message, 0):
		return errSCRAM("Message length does not match input length.")
	}
	return nil
}

func errSCRAM(format string, args ...any) *Error {
	return Fatalf(CodeProtocolViolation, "malformed SCRAM message").WithDetail(format, args...)
}

func asFatal(err error) error {
	e := *AsError(err)
	e.Severity, e.SeverityRaw = SeverityFatal, SeverityFatal
	return &e
}
