// @ABOUT@
//
// @HINT@

// a module and a script of CommonJS both have import()
import('node:test').then(({ test }) => test('@NAME@', async () => {
  const { default: assert } = await import('node:assert');
  const { spawnSync } = await import('node:child_process');
  const { mkdtempSync, rmSync } = await import('node:fs');
  const { tmpdir } = await import('node:os');
  const results = mkdtempSync(`${tmpdir()}/@NAME@-`);
  const command = [@WORDS@];
  command.push('--client=' + (process.env.LOCK_CLIENT ?? @CLIENT@));
  command.push('--results', results);
  const ran = spawnSync(process.env.HARNESS ?? 'harness', command, { encoding: 'utf8', maxBuffer: Infinity });
  rmSync(results, { recursive: true });
  assert.ifError(ran.error);
  assert.ok(ran.status === 0 || ran.status === 3, ran.stdout + ran.stderr);
}));
