package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newVerifyCommand(env *environment) *cobra.Command {
	return newGroupCommand("verify", "Prove that rows are where they belong", newVerifyResidencyCommand(env))
}

func newVerifyResidencyCommand(env *environment) *cobra.Command {
	var api apiOptions
	cmd := &cobra.Command{
		Use:   "residency",
		Short: "Count rows that are outside their region",
		Long: "Looks at every row of every table that is spread by a list, on every node. It ends with exit code 1 when a row\n" +
			"is on a node of another region than the one its value is listed for.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var checks []control.ResidencyCheck
			err := api.show(cmd.Context(), env, "/api/v1/verify/residency", nil, &checks, func(w io.Writer) { printResidency(w, checks) })
			if err != nil {
				return err
			}
			outside := int64(0)
			for _, c := range checks {
				outside += c.Outside
			}
			if outside > 0 {
				return fmt.Errorf("%d rows are outside their region", outside)
			}
			return nil
		},
	}
	api.addFlags(cmd)
	return cmd
}

func printResidency(w io.Writer, checks []control.ResidencyCheck) {
	if len(checks) == 0 {
		fmt.Fprintln(w, "no table is spread by a list")
		return
	}
	fmt.Fprintln(w, "DATABASE\tTABLE\tNODE\tREGION\tROWS\tOUTSIDE")
	for _, c := range checks {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", c.Database, c.Table, c.Node, orDash(c.Region), c.Rows, c.Outside)
	}
}
