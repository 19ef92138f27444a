"use strict";
for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.dateTime);
  const parts = [at.toLocaleDateString([], { dateStyle: "medium" }), at.toLocaleTimeString([], { timeStyle: "short" })];
  // A line may break between date and time, but not inside of them.
  time.textContent = parts.map((part) => part.replaceAll(/\s/g, "\u00a0")).join(", ");
}
for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  if (!source || !navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(source.textContent.trim());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
// A double click would send a form twice. The second request loses its session if the first one renews it.
const sent = new Set();
addEventListener("submit", (event) => {
  if (sent.has(event.target)) event.preventDefault();
  sent.add(event.target);
  setTimeout(() => sent.delete(event.target), 20000); // the maximum time of a request
});
addEventListener("pageshow", (event) => {
  sent.clear();
  // Its form was sent, or its session may have ended. A reload would send the form of a page that answers one. With
  // the fragment, the browser would send no request.
  if (event.persisted) location.replace(location.href.split("#")[0]);
});
