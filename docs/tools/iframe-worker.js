// Browsers start no workers for pages opened as files. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      this.inner = this.frame.contentWindow
      this.inner.postMessage = data => this.tell(this, data)
      const script = this.inner.document.createElement("script")
      script.src = new URL(url, document.baseURI).href
      script.onload = () => {
        this.waiting.forEach(data => this.tell(this.inner, data))
        this.waiting = null
      }
      this.inner.document.body.appendChild(script)
    }

    tell(target, data) {
      const event = new MessageEvent("message", { data })
      target.dispatchEvent(event)
      if (target === this && this.onmessage) this.onmessage(event)
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.tell(this.inner, data)
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
