/** `value` of `most` as a bar; the number beside it says the same, so readers of the screen need not hear of it. */
export function Bar({ value, most, look = "" }: { value: number; most: number; look?: string }) {
  const share = most > 0 ? Math.min(1, Math.max(0, value / most)) : 0;
  return (
    <span class="amount" aria-hidden="true">
      <span class={`amount-fill ${look}`} style={{ width: `${100 * share}%` }} />
    </span>
  );
}

/** A change as a bar to the left (less) or to the right (more) of the middle. */
export function ChangeBar({ change, most }: { change: number; most: number }) {
  const share = most > 0 ? Math.min(1, Math.abs(change) / most) : 0;
  const side = change < 0 ? { right: "50%" } : { left: "50%" };
  return (
    <span class="amount change" aria-hidden="true">
      <span class={`amount-fill ${change < 0 ? "less" : "more"}`} style={{ width: `${50 * share}%`, ...side }} />
    </span>
  );
}
