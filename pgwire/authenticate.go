package pgwire

import (
	"context"
	"errors"
	"os"
	"strings"
)

// authenticate bounds one method's exchange by the startup deadline and tells the client when it
// fails. AuthenticationOk is left to the caller, who may first have to reach a node.
func (c *Client) authenticate(ctx context.Context, exchange func() error) error {
	err := c.bounded(ctx, exchange)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = Fatalf(CodeQueryCanceled, "canceling authentication due to timeout")
	}
	if _, ok := errors.AsType[*Error](err); ok {
		c.Fail(err)
	}
	return err
}

// AuthenticateTrust lets the client in as the role it names. It is a method like the others so
// that the choice of a method is visible at the place where it is made.
func AuthenticateTrust(*Client) error { return nil }

// AuthenticateCert lets the client in when the verified certificate it has shown names the role
// as its common name.
func AuthenticateCert(c *Client) error {
	err := checkCertificate(c)
	if err != nil {
		c.Fail(err)
		return err
	}
	return nil
}

func checkCertificate(c *Client) *Error {
	if c.PeerCert == nil {
		return Fatalf(CodeInvalidAuthorization, "connection requires a valid client certificate")
	}
	name := c.PeerCert.Subject.CommonName
	if name == "" || strings.ContainsRune(name, 0) || name != c.User {
		return Fatalf(CodeInvalidAuthorization, "certificate authentication failed for user \"%s\"", c.User)
	}
	return nil
}

// errPassword is the one answer to a wrong password, an unknown role and a role without a
// password, so that they cannot be told apart.
func errPassword(user string) *Error {
	return Fatalf(CodeInvalidPassword, "password authentication failed for user \"%s\"", user)
}
