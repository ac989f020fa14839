package router

import (
	"context"
	"net"
	"net/netip"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// authenticate checks who the client is. With SCRAM the client's own proof gives the keys with
// which the router logs in to the nodes as the same role.
func (s *session) authenticate(ctx context.Context, c *pgwire.Client, lv *live) error {
	switch method := authMethod(lv.auth, c.Stream.Conn.RemoteAddr()); method {
	case "trust":
		return pgwire.AuthenticateTrust(c)
	case "cert":
		return pgwire.AuthenticateCert(c)
	case "scram-sha-256":
		verifier, err := s.router.verifier(ctx, c.User)
		if err != nil {
			return err
		}
		keys, err := pgwire.AuthenticateSCRAM(ctx, c, verifier)
		if err != nil {
			return err
		}
		s.creds = pool.Credentials{Keys: keys}
		return nil
	default:
		return pgwire.Fatalf(pgwire.CodeInvalidAuthorization,
			"no authentication rule of the router for host %q, user %q, database %q", c.Stream.Conn.RemoteAddr(), c.User, c.Database)
	}
}

func authMethod(rules []AuthRule, remote net.Addr) string {
	if len(rules) == 0 {
		return "scram-sha-256"
	}
	host, _, _ := net.SplitHostPort(remote.String())
	addr, err := netip.ParseAddr(host)
	for _, rule := range rules {
		if len(rule.Addresses) == 0 {
			return rule.Method
		}
		for _, p := range rule.Addresses {
			if err == nil && p.Contains(addr.Unmap()) {
				return rule.Method
			}
		}
	}
	return ""
}

// verifier reads a role's SCRAM verifier from the home node; "" for roles that cannot log in with
// a password, which the exchange does not tell from a wrong password.
func (r *Router) verifier(ctx context.Context, role string) (string, error) {
	conn, err := r.service(ctx, r.view.Load().m.Home, serviceDatabase)
	if err != nil {
		return "", err
	}
	defer r.pool.Release(conn)
	rows, err := conn.Query(ctx, "SELECT rolpassword FROM pg_shoal.verifier("+plan.QuoteLiteral(role)+
		") WHERE rolvaliduntil IS NULL OR rolvaliduntil > now()")
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "", nil
	}
	return string(rows[0][0]), nil
}
