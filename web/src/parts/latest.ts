/** Calls `act` with the latest value only, at most once in `gap_ms` and when the page is drawn anyway. */
export function latestOnly<T>(act: (value: T) => void, gap_ms: number, clock: Clock = BROWSER): ((value: T) => void) & { cancel: () => void } {
  let waiting: { value: T } | null = null;
  let last_ms = -Infinity;
  let isCancelled = false;
  const draw = () => {
    if (isCancelled || waiting === null) return;
    const { value } = waiting;
    waiting = null;
    last_ms = clock.now();
    act(value);
  };
  const take = (value: T) => {
    const isScheduled = waiting !== null;
    waiting = { value };
    if (!isScheduled) clock.after(Math.max(0, last_ms + gap_ms - clock.now()), draw);
  };
  return Object.assign(take, { cancel: () => void (isCancelled = true) });
}

export interface Clock {
  now: () => number;
  /** Calls `act` when that many milliseconds have passed and the page is drawn. */
  after: (wait_ms: number, act: () => void) => void;
}

const BROWSER: Clock = {
  now: () => performance.now(),
  after: (wait_ms, act) => void setTimeout(() => requestAnimationFrame(act), wait_ms),
};
