// The buttons that hand a region of the trace over to Perfetto, or save it; disabled ones say why.
import { useEffect, useState } from "preact/hooks";
import type { DocumentStore } from "./documents";
import { type Region, downloadRegion, openPerfetto } from "./perfetto";
import type { SessionDocument } from "./types.gen";

export function RegionButtons({
  region,
  documents,
  session,
}: {
  region: Region;
  documents: DocumentStore;
  session: SessionDocument;
}) {
  const [there, setThere] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    setProblem("");
    const kept = session.server || documents.isFile; // a daemon keeps no events
    documents.has(region.key).then((has) => setThere(has && kept), () => setThere(false));
  }, [region.key]);
  const perfetto = session.perfetto;
  const attempt = (act: () => Promise<void>) => () =>
    act().then(
      () => setProblem(""),
      (error: Error) => setProblem(error.message),
    );
  const reason = there
    ? perfetto
      ? ""
      : "Perfetto is not served here: download the region and open it there."
    : `${documents.isFile ? "This file has" : "The daemon keeps"} no events of this iteration; deepprof view TRACE cuts any region out.`;
  return (
    <div class="actions">
      <button
        type="button"
        data-key="p"
        disabled={!there || !perfetto}
        title="p"
        onClick={attempt(() => openPerfetto(perfetto!, documents, region, session.server))}
      >
        Open in Perfetto
      </button>
      <button type="button" disabled={!there} onClick={attempt(() => downloadRegion(documents, region, session.server))}>
        Download region
      </button>
      {(problem || reason) && (
        <p class="hint" role={problem ? "alert" : undefined}>
          {problem || reason}
        </p>
      )}
    </div>
  );
}
