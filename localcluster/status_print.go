package localcluster

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Print writes the status for people.
func (s *Status) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	epoch := "unknown"
	if s.Epoch > 0 {
		epoch = strconv.FormatUint(s.Epoch, 10)
	}
	fmt.Fprintf(t, "cluster\t%s\n", s.Dir)
	fmt.Fprintf(t, "health\t%s\n", s.Health)
	fmt.Fprintf(t, "epoch\t%s\n", epoch)
	fmt.Fprintf(t, "http\thttp://%s\n", s.HTTP)
	fmt.Fprintf(t, "etcd\t%s, %s%s\n", s.Etcd.Endpoint, s.Etcd.State, pidSuffix(s.Etcd.PID))
	// An empty line ends a block, so each table has its own columns.
	s.printNodes(t)
	fmt.Fprintf(t, "\nROUTER\tSTATE\tPID\tEPOCH\tCLIENTS\tPINNED\tDSN\n")
	for _, r := range s.Routers {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", r.Name, r.State, dash(r.PID), r.Epoch, count(r.Clients), count(r.Pinned), r.DSN)
	}
	fmt.Fprintf(t, "\nCONTROLLER\tSTATE\tPID\tHTTP\tROLE\n")
	for _, c := range s.Controllers {
		role := "standby"
		if c.Leader {
			role = "leader"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.State, dash(c.PID), c.HTTP, role)
	}
	if len(s.Problems) > 0 {
		fmt.Fprintf(t, "\nPROBLEMS\n")
		for _, p := range s.Problems {
			fmt.Fprintf(t, "- %s\n", p)
		}
	}
	return t.Flush()
}

func (s *Status) printNodes(w io.Writer) {
	fmt.Fprintf(w, "\nNODE\tROLE\tSTATE\tPID\tADDRESS\tSHARDS\tLAG\n")
	for _, n := range s.Nodes {
		role := n.Role
		if n.Home {
			role += ", home"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t-\n", n.Name, role, n.State, dash(n.PID), n.Address, count(n.Shards))
		for _, r := range n.Replicas {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t-\t%s\n", r.Name, r.Role, r.State, dash(r.PID), r.Address, lag(r.LagBytes))
		}
	}
}

func pidSuffix(pid int) string {
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf(", pid %d", pid)
}

func dash(pid int) string {
	if pid == 0 {
		return "-"
	}
	return strconv.Itoa(pid)
}

func lag(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return fmt.Sprintf("%d bytes", *bytes)
}

// count is a number that may be unknown.
func count(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}
