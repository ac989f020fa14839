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
