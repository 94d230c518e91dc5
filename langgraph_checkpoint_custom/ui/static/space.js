// Asks for the figures of the whole store after the page has been painted.

const place = document.querySelector("#figures");
try {
  const response = await fetch(place.dataset.load);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  place.replaceWith(page.querySelector("#figures") ?? page.querySelector("main > *"));
} catch {
  place.querySelector("[role=status]").textContent = "The figures did not come; load the page again.";
}
document.documentElement.dataset.ready = "yes";
