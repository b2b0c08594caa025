// What the keys do.
import { useEffect, useRef } from "preact/hooks";

const KEYS = [
  ["← →", "the box before, the box after; in the strip, the iteration"],
  ["↓ or Enter", "into the longest box below"],
  ["↑ or Esc", "out to the box around"],
  ["/", "search"],
  ["b", "flame: the other direction"],
  ["p", "open the region in Perfetto"],
  ["e", "open the source in the editor"],
  ["?", "this help"],
];

export function Help({ open, close }: { open: boolean; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close}>
      <h2 id="help-title">Keys</h2>
      <dl>
        {KEYS.map(([key, does]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <p>What is chosen stands in the address of the page: a copy of it shows the same.</p>
      <button type="button" onClick={close}>
        Close
      </button>
    </dialog>
  );
}
