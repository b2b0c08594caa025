import type { PlotOptions } from "@observablehq/plot";
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { Chart, useWidth } from "../chart";

interface PictureProps {
  /** What the picture shows, for those who do not see it. */
  label: string;
  options: (width: number) => PlotOptions;
  /** The same as a table. */
  table?: () => ComponentChildren;
  /** A sentence below, which may depend on the width. */
  note?: (width: number) => string;
  /** What lies over the picture and has its size. */
  children?: ComponentChildren;
}

/** A chart with a sentence below, and its table behind a button. */
export function Picture({ label, options, table, note, children }: PictureProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const sentence = note && width > 0 ? note(width) : "";
  return (
    <figure class="chart-figure">
      <div ref={box} class="chart-box">
        <Chart label={label} options={options} />
        {children}
      </div>
      {sentence !== "" && <figcaption class="quiet">{sentence}</figcaption>}
      {table && <AsTable table={table} />}
    </figure>
  );
}

/** A button that shows what a picture shows as a table; the table is made when it is asked for. */
export function AsTable({ table }: { table: () => ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <div class="as-table">
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Hide the table" : "Show as table"}
      </button>
      {open && table()}
    </div>
  );
}
