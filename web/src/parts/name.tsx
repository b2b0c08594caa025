import { showName } from "../names";

/** A name out of the trace: never longer than `longest`, whatever it holds; the whole one shows when pointed at. */
export function Name({ text, whole = text, longest = 64 }: { text: string; whole?: string; longest?: number }) {
  return (
    <bdi class="name" title={showName(whole)}>
      {showName(text, longest)}
    </bdi>
  );
}
