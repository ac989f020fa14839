// node-postgres against a cluster: what an application does with it, in the simple, extended and
// prepared protocol, first with local and then with distributed tables. PGSHOAL_DSN says where.
import assert from 'node:assert/strict';
import net from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import test, { after, before } from 'node:test';

import pg from 'pg';
import copyStreams from 'pg-copy-streams';
import Cursor from 'pg-cursor';

const dsn = process.env.PGSHOAL_DSN;
const deadline = { timeout: 30_000 }; // what hangs must fail, not wait

const columns = 'k bigint NOT NULL, id int NOT NULL, t text, n numeric(12,3), f float8, bo bool, ts timestamptz, j jsonb, b bytea, a text[], u uuid';
const names = ['k', 'id', 't', 'n', 'f', 'bo', 'ts', 'j', 'b', 'a', 'u'];

const row = (k, id) => ({
  k: String(k),
  id,
  t: `it's "${id}" \\ é漢`,
  n: `${id}.250`,
  f: id / 3,
  bo: id % 2 === 0,
  ts: new Date(Date.UTC(2024, 1, 29, 1, 2, 3, 456) + id),
  j: { id, list: [1, null, 'x'] },
  b: Buffer.from([0, 1, 255, id]),
  a: ['x', 'y,"z', null],
  u: `00000000-0000-4000-8000-${String(id).padStart(12, '0')}`,
});

const literal = (v) => {
  if (v instanceof Date) return `'${v.toISOString()}'`;
  if (Buffer.isBuffer(v)) return `'\\x${v.toString('hex')}'`;
  if (Array.isArray(v)) return `ARRAY[${v.map((e) => (e === null ? 'NULL' : pg.escapeLiteral(e))).join()}]`;
  if (typeof v === 'object') return pg.escapeLiteral(JSON.stringify(v));
  return typeof v === 'string' ? pg.escapeLiteral(v) : String(v);
};

// modes are the three ways in which a statement with values reaches a server.
const modes = {
  simple: (sql, values) => ({ text: sql.replace(/\$(\d+)/g, (_, i) => literal(values[i - 1])) }),
  extended: (sql, values) => ({ text: sql, values }),
  prepared: (sql, values) => ({ name: `s${sql}`.slice(0, 60), text: sql, values }),
};

const connect = async (options = {}) => {
  const client = new pg.Client({ connectionString: dsn, ...options });
  await client.connect();
  return client;
};

const withClient = (run, options) => async () => {
  const client = await connect(options);
  try {
    await run(client);
  } finally {
    await client.end();
  }
};

const fails = (promise, code) => assert.rejects(promise, (e) => e.code === code || assert.fail(`${e.code} ${e.message}, not ${code}`));

for (const placement of ['local', 'distributed']) {
  const table = `node_pg_${placement}`;
  const check = (name, run, options) => test(`${placement}: ${name}`, deadline, withClient(run, options));

  before(withClient(async (client) => {
    await client.query(`CREATE TABLE ${table} (${columns}, PRIMARY KEY (k, id), CHECK (id > 0))`);
    if (placement === 'distributed') await client.query(`SELECT create_distributed_table('${table}', $1)`, ['k']);
  }));
  after(withClient((client) => client.query(`DROP TABLE ${table}`)));

  for (const [mode, statement] of Object.entries(modes)) {
    const base = 1000 * (1 + Object.keys(modes).indexOf(mode));

    check(`${mode} round trip of types`, async (client) => {
      const places = names.map((_, i) => `$${i + 1}`).join();
      for (let i = 1; i <= 12; i++) {
        const want = row(base + i, i);
        const { rowCount } = await client.query(statement(`INSERT INTO ${table} VALUES (${places})`, names.map((n) => want[n])));
        assert.equal(rowCount, 1);
        const { rows } = await client.query(statement(`SELECT * FROM ${table} WHERE k = $1`, [base + i]));
        assert.deepEqual(rows, [want]);
      }
    });

    check(`${mode} SQLSTATEs`, async (client) => {
      await client.query(statement(`INSERT INTO ${table} (k, id) VALUES ($1, $2)`, [base, 1]));
      await fails(client.query(statement(`INSERT INTO ${table} (k, id) VALUES ($1, $2)`, [base, 1])), '23505');
      await fails(client.query(statement(`INSERT INTO ${table} (k, id) VALUES ($1, $2)`, [base, -1])), '23514');
      await fails(client.query(statement(`SELECT * FROM ${table} WHERE k = $1 AND nosuch = 1`, [base])), '42703');
      await fails(client.query(statement('SELEC $1', [1])), '42601');
      await fails(client.query(statement(`SELECT 1 / (id - id) FROM ${table} WHERE k = $1`, [base])), '22012');
      await client.query('BEGIN');
      await fails(client.query(statement(`INSERT INTO ${table} (k, id) VALUES ($1, $2)`, [base, 1])), '23505');
      await fails(client.query(statement('SELECT $1::int', [1])), '25P02');
      assert.equal((await client.query('COMMIT')).command, 'ROLLBACK');
    });

    check(`${mode} transaction over several keys`, async (client) => {
      const keys = [1, 2, 3, 4, 5, 6].map((i) => base + 500 + i);
      const insertAll = async () => {
        for (const k of keys) await client.query(statement(`INSERT INTO ${table} (k, id) VALUES ($1, $2)`, [k, 7]));
      };
      const counts = async () => {
        const found = [];
        for (const k of keys) found.push((await client.query(statement(`SELECT id FROM ${table} WHERE k = $1`, [k]))).rowCount);
        return found;
      };
      await client.query('BEGIN');
      await insertAll();
      await client.query('ROLLBACK');
      assert.deepEqual(await counts(), keys.map(() => 0));
      await client.query('BEGIN');
      await insertAll();
      await client.query('COMMIT');
      assert.deepEqual(await counts(), keys.map(() => 1));
    });
  }

  check('values in binary', async (client) => {
    await client.query(`INSERT INTO ${table} (k, id, t, bo) VALUES ($1, $2, $3, $4)`, ['9007199254740993', 77, 'é', true]);
    const { rows, fields } = await client.query({ text: `SELECT k, id, t, bo FROM ${table} WHERE k = $1`, values: ['9007199254740993'], binary: true });
    assert.deepEqual(rows, [{ k: '9007199254740993', id: 77, t: 'é', bo: true }]);
    assert.deepEqual(fields.map((f) => f.format), ['binary', 'binary', 'binary', 'binary']);
  }, { binary: true });

  check('COPY in and out', async (client) => {
    const lines = (from, to) => Array.from({ length: to - from }, (_, i) => `${20_000 + ((from + i) % 13)}\t${from + i}\tcopied\n`);
    const into = client.query(copyStreams.from(`COPY ${table} (k, id, t) FROM STDIN`));
    await pipeline(Readable.from(lines(1, 5001)), into);
    assert.equal(into.rowCount, 5000);
    const broken = pipeline(Readable.from([...lines(6000, 6100), '20000\tseven\tbad\n']), client.query(copyStreams.from(`COPY ${table} (k, id, t) FROM STDIN`)));
    await fails(broken, '22P02');
    let out = '';
    for await (const chunk of client.query(copyStreams.to(`COPY (SELECT id FROM ${table} WHERE k = 20003) TO STDOUT`))) out += chunk;
    assert.equal(out.trim().split('\n').length, 385);
    assert.ok(out.split('\n').every((id) => Number(id) < 6000), 'nothing of the broken COPY stays');
  });

  check('a cursor reads in pieces and reports errors before Sync', async (client) => {
    await client.query(`INSERT INTO ${table} (k, id) SELECT 30000, g FROM generate_series(1, 25) g`).catch(async (e) => {
      assert.equal(e.code, '0A000'); // the router says what it cannot do yet
      for (let id = 1; id <= 25; id++) await client.query(`INSERT INTO ${table} (k, id) VALUES (30000, $1)`, [id]);
    });
    const cursor = client.query(new Cursor(`SELECT id FROM ${table} WHERE k = $1 ORDER BY id`, [30_000]));
    assert.deepEqual((await cursor.read(10)).map((r) => r.id), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert.equal((await cursor.read(100)).length, 15);
    await cursor.close();
    for (const [sql, code] of [['SELEC 1', '42601'], [`SELECT nosuch FROM ${table} WHERE k = 1`, '42703'], ['SELECT 1 / (g - 3) FROM generate_series(1, 5) g', '22012']]) {
      const broken = client.query(new Cursor(sql));
      await fails(broken.read(10), code);
      await broken.close().catch(() => {}); // the error is told once more
    }
    assert.equal((await client.query('SELECT 1')).rowCount, 1);
  });
}

// raw are types that node-postgres gives as text, and values in the form in which PostgreSQL writes them.
const raw = {
  smallint: '-32768', bigint: '9223372036854775807', numeric: 'NaN', 'numeric(12,3)': '-1.250', real: '0.1', float8: '-2.5e-300', bool: 't',
  text: 'it\'s \\ é漢🐟\n', 'char(4)': 'ab  ', bytea: '\\x0001ff5c27', date: '2024-02-29', time: '23:59:59.999999', timetz: '12:34:56.789+05:30',
  timestamp: '2024-02-29 23:59:59.123456', timestamptz: 'infinity', interval: '1 year 2 mons 3 days 04:05:06.789',
  uuid: '00000000-0000-4000-8000-00000000002a', json: '{"a" :  [1, null]}', jsonb: '{"a": [1, null, 1.50]}', xml: '<a b="c">d</a>', money: '-$1,234.56',
  inet: '192.168.0.1/24', cidr: '10.0.0.0/8', macaddr: '08:00:2b:01:02:03', 'bit(5)': '10110', varbit: '101', point: '(1.5,-2)', box: '(1,1),(0,0)',
  path: '((0,0),(1,1),(2,0))', circle: '<(1,2),3>', tsvector: "'a':1 'b':2A", int4range: '[1,5)', tstzrange: '["2024-01-01 00:00:00+00",)',
  int8multirange: '{[1,3),[5,7)}', 'int[]': '{{1,2},{3,NULL}}', 'text[]': '{x,"y,z",NULL,"NULL",""}', node_pg_mood: 'very happy', 'node_pg_mood[]': '{sad,"very happy"}',
  node_pg_pair: '(1,"a b")', node_pg_positive: '7',
};

test('all types', deadline, withClient(async (client) => {
  await client.query("SET timezone = 'UTC'");
  await client.query("CREATE TYPE node_pg_mood AS ENUM ('sad', 'very happy')");
  await client.query('CREATE TYPE node_pg_pair AS (n int, t text)');
  await client.query('CREATE DOMAIN node_pg_positive AS int CHECK (VALUE > 0)');
  await client.query(`CREATE TABLE node_pg_types (k bigint PRIMARY KEY, ${Object.keys(raw).map((type, i) => `c${i} ${type}`).join()})`);
  await client.query("SELECT create_distributed_table('node_pg_types', 'k')");
  const places = Object.keys(raw).map((_, i) => `$${i + 2}`).join();
  // What the catalog says holds for the answers of all nodes; a domain is described as what it is over.
  const catalog = (await client.query(`SELECT attrelid, attnum, CASE typtype WHEN 'd' THEN typbasetype ELSE atttypid END AS type FROM pg_attribute
    JOIN pg_type t ON t.oid = atttypid WHERE attrelid = 'node_pg_types'::regclass AND attnum > 0 ORDER BY attnum`)).rows.map((r) => [r.attrelid, r.attnum, r.type]);
  let k = 0;
  for (const statement of Object.values(modes)) {
    for (let i = 0; i < 4; i++) {
      k += 1;
      await client.query(statement(`INSERT INTO node_pg_types VALUES ($1, ${places})`, [k, ...Object.values(raw)]));
      for (const reading of Object.values(modes)) {
        const query = { ...reading('SELECT * FROM node_pg_types WHERE k = $1', [k]), rowMode: 'array', types: { getTypeParser: () => (v) => v } };
        const { rows, fields } = await client.query(query);
        assert.deepEqual(rows, [[String(k), ...Object.values(raw)]]);
        assert.deepEqual(fields.map((f) => [f.tableID, f.columnID, f.dataTypeID]), catalog);
      }
    }
  }
  await client.query('DROP TABLE node_pg_types');
  await client.query('DROP TYPE node_pg_mood, node_pg_pair, node_pg_positive');
}));

test('errors have all fields', deadline, withClient(async (client) => {
  await client.query('CREATE TABLE node_pg_errors (k bigint CONSTRAINT node_pg_small CHECK (k < 10))');
  await client.query("SELECT create_distributed_table('node_pg_errors', 'k')");
  for (const statement of Object.values(modes)) {
    await assert.rejects(client.query(statement('INSERT INTO node_pg_errors VALUES ($1)', [11])), {
      severity: 'ERROR', code: '23514', schema: 'public', table: 'node_pg_errors', constraint: 'node_pg_small', file: 'execMain.c', routine: 'ExecConstraints',
      detail: 'Failing row contains (11).',
    });
  }
  await client.query('DROP TABLE node_pg_errors');
}));

test('several statements in one text after a failed one', deadline, withClient(async (client) => {
  await fails(client.query('SELEC'), '42601');
  const results = await client.query('BEGIN; SELECT 1 AS one; SELECT 2 AS two; COMMIT');
  assert.deepEqual(results.map((r) => r.command), ['BEGIN', 'SELECT', 'SELECT', 'COMMIT']);
}));

// requestCancel does what libpq's PQcancel does; node-postgres has no call for it that stays.
const requestCancel = (client) => new Promise((resolve, reject) => {
  const { hostname, port } = new URL(dsn);
  const message = Buffer.alloc(16);
  [16, 80877102, client.processID, client.secretKey].forEach((v, i) => message.writeInt32BE(v, 4 * i));
  const socket = net.connect(Number(port), hostname, () => socket.end(message));
  socket.on('close', resolve).on('error', reject).resume();
});

test('cancel', deadline, withClient(async (client) => {
  let running = true;
  const cancelled = fails(client.query('SELECT pg_sleep(60)'), '57014').finally(() => { running = false; });
  // A request that is there before the statement cancels nothing.
  while (running) await requestCancel(client);
  await cancelled;
  assert.equal((await client.query('SELECT 1')).rowCount, 1);
}));

test('LISTEN and NOTIFY between sessions', deadline, withClient(async (client) => {
  const other = await connect();
  const heard = new Promise((resolve) => client.on('notification', (n) => resolve([n.channel, n.payload])));
  await client.query('LISTEN node_pg');
  await other.query('SELECT pg_notify($1, $2)', ['node_pg', 'hello']);
  assert.deepEqual(await heard, ['node_pg', 'hello']);
  await other.end();
}));

test('a value of 5 MB and 100,000 rows', deadline, withClient(async (client) => {
  const large = 'x'.repeat(5_000_000);
  assert.equal((await client.query('SELECT $1::text AS v', [large])).rows[0].v, large);
  assert.equal((await client.query('SELECT g, md5(g::text) FROM generate_series(1, 100000) g')).rowCount, 100_000);
}));

test('a pool of clients that prepare the same statement', deadline, async () => {
  const pool = new pg.Pool({ connectionString: dsn, max: 8 });
  const answers = await Promise.all(Array.from({ length: 400 }, (_, i) => pool.query({ name: 'same', text: 'SELECT $1::int AS v', values: [i] })));
  assert.ok(answers.every((r, i) => r.rows[0].v === i));
  await pool.end();
});
