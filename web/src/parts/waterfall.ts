import type { DiffStep } from "../types.gen";

/** A step of a waterfall: it begins where the one before it ends. */
export interface FallingStep {
  step: DiffStep;
  from_ns: number;
  to_ns: number;
}

/** The steps that change anything from A's time on, in their own order or the largest change first. */
export function fallingSteps(a_ns: number, steps: DiffStep[], byChange: boolean): FallingStep[] {
  const change = (step: DiffStep) => step.b_ns - step.a_ns;
  const moving = steps.filter((step) => change(step) !== 0);
  if (byChange) moving.sort((a, b) => Math.abs(change(b)) - Math.abs(change(a)));
  let at = a_ns;
  return moving.map((step) => {
    const from_ns = at;
    at += change(step);
    return { step, from_ns, to_ns: at };
  });
}

/** From where to where a waterfall is drawn: not from 0, or small changes of a long time would not be seen. */
export function axisOf(a_ns: number, b_ns: number, steps: FallingStep[]): { low: number; high: number } {
  const times = [a_ns, b_ns, ...steps.flatMap((step) => [step.from_ns, step.to_ns])];
  const [low, high] = [Math.min(...times), Math.max(...times)];
  const margin = Math.max(1, 0.04 * (high - low));
  return { low: Math.max(0, low - margin), high: high + margin };
}
