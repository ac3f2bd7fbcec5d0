// The search where the site is opened from a folder: browsers start no worker from a file, so a frame that is not seen
// does its work. Served by a server, nothing here is used.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open();
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(address, location.href);
      this.ready = new Promise((resolve) => script.addEventListener("load", resolve)).then(() => inside);
      inside.document.body.append(script);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
