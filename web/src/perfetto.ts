// A region of the trace as a file, and handed over to Perfetto's own page in another window.
import { type DocumentStore, fromBase64 } from "./documents";

const PING_MS = 50;
const PATIENCE_MS = 30_000;

/** What to cut out: nanoseconds since the start of the iteration on the device, `key` where its document stands. */
export interface Region {
  key: string; // region/LOOP/ITERATION
  from_ns: number;
  to_ns: number;
  title: string;
}

interface RegionDocument {
  name: string;
  gzip_base64: string;
}

/** Returns the name and the bytes of a region's file, gzipped JSON. */
export async function loadRegion(
  documents: DocumentStore,
  region: Region,
  server: boolean,
): Promise<{ name: string; bytes: Uint8Array<ArrayBuffer> }> {
  if (!server) {
    const { name, gzip_base64 } = await documents.loadAny<RegionDocument>(region.key);
    return { name, bytes: fromBase64(gzip_base64) };
  }
  const answer = await fetch(`api/${region.key}?from_ns=${Math.floor(region.from_ns)}&to_ns=${Math.ceil(region.to_ns)}`);
  if (!answer.ok) throw new Error(`The server cannot cut this region out: it answers ${answer.status}.`);
  return { name: `${region.key.split("/").slice(-3).join("-")}.json.gz`, bytes: new Uint8Array(await answer.arrayBuffer()) };
}

/** Gives the region's file to the user. */
export async function downloadRegion(documents: DocumentStore, region: Region, server: boolean): Promise<void> {
  const { name, bytes } = await loadRegion(documents, region, server);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: "application/gzip" }));
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Opens Perfetto at `address` and hands the region over. To be called by a click: browsers refuse other windows. */
export async function openPerfetto(address: string, documents: DocumentStore, region: Region, server: boolean): Promise<void> {
  const other = window.open(address, "_blank");
  if (!other) throw new Error("The browser does not let this page open another window; allow it, or download the region.");
  const { origin } = new URL(address, location.href);
  const [{ bytes }] = await Promise.all([loadRegion(documents, region, server), ready(other, origin)]);
  const title = region.title.slice(0, 200);
  other.postMessage({ perfetto: { buffer: bytes.buffer, title, keepApiOpen: true } }, origin, [bytes.buffer]);
}

/** Returns once the other window answers. */
function ready(other: Window, origin: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const pings = setInterval(() => other.postMessage("PING", origin), PING_MS);
    const end = (act: () => void) => (clearInterval(pings), clearTimeout(late), removeEventListener("message", heard), act());
    const late = setTimeout(
      () => end(() => reject(new Error("Perfetto does not answer; download the region and open it there."))),
      PATIENCE_MS,
    );
    const heard = (event: MessageEvent) => event.source === other && event.data === "PONG" && end(resolve);
    addEventListener("message", heard);
  });
}
