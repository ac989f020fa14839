package integration

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestRolesMadeThroughTheRouter(t *testing.T) {
	admin := client(t)
	run(t, admin,
		"CREATE ROLE role_ann LOGIN PASSWORD 'ann''s secret'", "CREATE ROLE role_bob LOGIN ENCRYPTED PASSWORD 'bob'", "CREATE ROLE role_nologin PASSWORD 'x'",
		"CREATE ROLE role_old LOGIN PASSWORD 'old' VALID UNTIL '2001-01-01'")
	for _, c := range []int{0, 1} {
		ann := connect(t, shared().RoleDSN(c, "role_ann", "ann's secret", "postgres"))
		expect(t, ann, "role_ann|role_ann", "SELECT current_user, session_user")
	}
	bad := func(role, password, database, code, says string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), shared().RoleDSN(0, role, password, database))
		if err == nil {
			hangUp(conn)
			t.Errorf("%s logged in with %q", role, password)
			return
		}
		refused(t, err, code, says)
	}
	bad("role_ann", "wrong", "postgres", "28P01", `password authentication failed for user "role_ann"`)
	bad("role_nobody", "x", "postgres", "28P01", `password authentication failed for user "role_nobody"`)
	bad("role_nologin", "x", "postgres", "28000", `role "role_nologin" is not permitted to log in`)
	bad("role_old", "old", "postgres", "28P01", `password authentication failed for user "role_old"`)
	bad("role_ann", "ann's secret", "role_no_database", "3D000", `database "role_no_database" does not exist`)
	t.Run("a changed password", func(t *testing.T) {
		run(t, connect(t, shared().DSN(1)), "ALTER ROLE role_bob PASSWORD 'new'")
		bad("role_bob", "bob", "postgres", "28P01", "password authentication failed")
		expect(t, connect(t, shared().RoleDSN(0, "role_bob", "new", "postgres")), "role_bob", "SELECT current_user")
		bob := connect(t, shared().RoleDSN(0, "role_bob", "new", "postgres"))
		run(t, bob, "ALTER ROLE role_bob PASSWORD 'own'")
		expect(t, connect(t, shared().RoleDSN(1, "role_bob", "own", "postgres")), "role_bob", "SELECT current_user")
	})
	sameOnNodes(t, shared(), "1", "SELECT count(DISTINCT rolpassword) FROM pg_authid WHERE rolname = 'role_ann' AND rolpassword LIKE 'SCRAM-SHA-256$%'")
	checkNoDrift(t, shared())
}

func TestGrantsAndRowSecurity(t *testing.T) {
	admin := client(t)
	run(t, admin,
		"CREATE ROLE grant_ann LOGIN PASSWORD 'a'", "CREATE ROLE grant_bob LOGIN PASSWORD 'b'",
		"CREATE TABLE grant_t (id bigint PRIMARY KEY, owner text, secret text)", "SELECT create_distributed_table('grant_t', 'id')",
		"CREATE TABLE grant_ref (id int)", "SELECT create_reference_table('grant_ref')", "INSERT INTO grant_ref VALUES (1)",
		"GRANT SELECT (id, owner), INSERT ON grant_t TO grant_ann", "GRANT ALL ON grant_t, grant_ref TO grant_bob")
	ann := connect(t, shared().RoleDSN(0, "grant_ann", "a", "postgres"))
	bob := connect(t, shared().RoleDSN(1, "grant_bob", "b", "postgres"))
	for i := range 20 {
		who := []*pgx.Conn{ann, bob}[i%2]
		if _, err := who.Exec(t.Context(), "INSERT INTO grant_t VALUES ($1, current_user, 's')", i); err != nil {
			t.Fatal(describe(err))
		}
	}
	checkPlaced(t, shared(), "grant_t", "id", 20)
	expect(t, ann, "4|grant_ann", "SELECT id, owner FROM grant_t WHERE id = 4")
	fails(t, ann, "42501", "SELECT secret FROM grant_t WHERE id = 4", "permission denied for table grant_t")
	fails(t, ann, "42501", "DELETE FROM grant_t WHERE id = 4")
	fails(t, ann, "42501", "SELECT * FROM grant_ref")
	fails(t, ann, "42501", "ALTER TABLE grant_t ADD COLUMN x int", "must be owner")
	fails(t, ann, "42501", "SELECT create_reference_table('grant_ref')")
	fails(t, ann, "42501", "SELECT undistribute_table('grant_t')")
	fails(t, ann, "42501", "CREATE ROLE grant_carl")
	fails(t, ann, "42501", "DROP TABLE grant_ref")
	t.Run("row security", func(t *testing.T) {
		run(t, admin, "ALTER TABLE grant_t ENABLE ROW LEVEL SECURITY", "CREATE POLICY own ON grant_t USING (owner = current_user)")
		expect(t, bob, "5", "SELECT id FROM grant_t WHERE id = 5")
		expect(t, bob, "", "SELECT id FROM grant_t WHERE id = 4")
		expect(t, ann, "4", "SELECT id FROM grant_t WHERE id = 4")
		fails(t, bob, "42501", "INSERT INTO grant_t VALUES (100, 'grant_ann', 's')", "row-level security")
	})
	t.Run("SET ROLE", func(t *testing.T) {
		run(t, admin, "SET ROLE grant_ann")
		expect(t, admin, "grant_ann|postgres", "SELECT current_user, session_user")
		expect(t, admin, "", "SELECT id FROM grant_t WHERE id = 5")
		fails(t, admin, "42501", "SELECT secret FROM grant_t WHERE id = 4")
		run(t, admin, "RESET ROLE")
		expect(t, admin, "5|s", "SELECT id, secret FROM grant_t WHERE id = 5")
		run(t, admin, "SET SESSION AUTHORIZATION grant_bob")
		expect(t, admin, "", "SELECT id FROM grant_t WHERE id = 4")
		run(t, admin, "RESET SESSION AUTHORIZATION")
	})
	t.Run("an owner that is no superuser", func(t *testing.T) {
		run(t, admin, "GRANT CREATE ON SCHEMA public TO grant_ann")
		run(t, ann, "CREATE TABLE grant_own (id bigserial PRIMARY KEY, v text)", "INSERT INTO grant_own (v) SELECT 'x' FROM generate_series(1, 200)",
			"SELECT create_distributed_table('grant_own', 'id')", "ALTER TABLE grant_own ADD COLUMN w int",
			"CREATE FUNCTION grant_f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "INSERT INTO grant_own (v) VALUES ('y')")
		checkPlaced(t, shared(), "grant_own", "id", 201)
		run(t, ann, "SELECT undistribute_table('grant_own')")
		checkLocal(t, shared(), "grant_own", 201)
		fails(t, bob, "42501", "SELECT * FROM grant_own WHERE id = 1")
	})
	checkNoDrift(t, shared())
}
