// A chart of Observable Plot as part of a view: `options` as for Plot.plot, without texts for `style`.
import * as Plot from "@observablehq/plot";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** The chart as one picture called `label`; `options` is asked again for each width. */
export function Chart({ label, options }: { label: string; options: (width: number) => Plot.PlotOptions }) {
  const place = useRef<HTMLDivElement>(null);
  const width = useWidth(place);
  useLayoutEffect(() => {
    if (!width) return;
    const chart = Plot.plot({ ...options(width), className: "plot", width });
    // The page's policy allows no styles but its own: theme.css has these rules. Removed before it is in the page.
    for (const style of chart.querySelectorAll("style")) style.remove();
    chart.setAttribute("aria-hidden", "true"); // the box has the label; Plot's labels on groups are none by the rules
    place.current?.replaceChildren(chart);
  });
  return <div ref={place} class="chart" role="img" aria-label={label} />;
}

/** Returns the width of an element in pixels, 0 before it is known. */
export function useWidth(place: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const measure = () => setWidth(Math.floor(element.clientWidth));
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  return width;
}
