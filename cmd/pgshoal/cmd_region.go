package main

import (
	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/control"
)

func newRegionCommand(env *environment) *cobra.Command {
	return newGroupCommand("region", "Say which values of a list live in which region", newRegionAddCommand(env))
}

func newRegionAddCommand(env *environment) *cobra.Command {
	var api apiOptions
	var req control.RegionRequest
	cmd := &cobra.Command{
		Use:   "add TABLE REGION VALUE...",
		Short: "Let more values of a table's list live in a region",
		Long: "The values must be in no region yet, and the list must have no default region, where rows with them could be. A region that\n" +
			"the list does not have yet gets a shard on one of its nodes. SHOW shoal.regions lists them all.",
		Args: cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Table, req.Region, req.Values = args[0], args[1], args[2:]
			return api.editShards(cmd.Context(), env, "/api/v1/regions", req)
		},
	}
	api.addFlags(cmd)
	cmd.Flags().StringVar(&req.Database, "database", "", "`database` of the table (default the controller's own)")
	cmd.Flags().BoolVar(&req.Dry, "dry-run", false, "only show what it would make")
	return cmd
}
