//! Writes log lines to standard error on a separate thread, so that a stopped reader, a full disk or a closed pipe never delays
//! or ends the code that logs. Lines that cannot be written are dropped and counted; the count is logged when a line can be
//! written again.
//!
//! This module also makes lines safe: control characters in the text of a client cannot start a new line or reach a terminal.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use super::Format;

/// The most bytes that wait to be written: some thousand lines, more than a burst of warnings.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The longest line that is written. A longer line is a mistake in a log statement.
const LINE_BYTES_MAX: usize = 64 << 10;

/// How long the end of the process waits for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How often, and with what pause, writing is tried again when a non-blocking standard error is not ready.
const NOT_READY_RETRIES: u32 = 100;
const NOT_READY_PAUSE: Duration = Duration::from_millis(10);

/// The waiting lines. Cheap to clone.
#[derive(Clone)]
pub(super) struct Lines {
    shared: Arc<Shared>,
    style: Style,
}

/// The part of the format on which making lines safe depends.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) format: Format,
    /// Whether the formatter writes colours. It removes escape characters from the text itself.
    pub(super) colours: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The number of lines that were dropped because the buffer was full.
    dropped: u64,
    /// Whether the thread is writing lines now.
    writing: bool,
}

impl Shared {
    /// No code under this lock panics, and the log must work after a panic in any case.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    /// Starts the thread that writes to `out`.
    pub(super) fn start(style: Style, out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let lines = Self {
            shared: Arc::clone(&shared),
            style,
        };
        thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || write_lines(&shared, Output::new(out, style.format)))?;
        Ok(lines)
    }

    fn push(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let safe = make_safe(&text, self.style);
        let mut queue = self.shared.queue();
        if safe.len() > LINE_BYTES_MAX || queue.bytes + safe.len() > WAITING_BYTES_MAX {
            queue.dropped += 1;
        } else {
            queue.bytes += safe.len();
            queue.lines.push_back(safe.into_owned().into_bytes());
        }
        self.shared.changed.notify_all();
    }

    /// Waits until all lines are written, or until the time-out.
    pub(super) fn flush(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let mut queue = self.shared.queue();
        while queue.writing || !queue.lines.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            queue = self
                .shared
                .changed
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// The writer of one event. The formatter writes the event in one call.
pub(super) struct Line<'a>(&'a Lines);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_lines(shared: &Shared, mut output: Output<impl Write>) {
    loop {
        let mut queue = shared.queue();
        queue.writing = false;
        shared.changed.notify_all();
        while queue.lines.is_empty() && queue.dropped == 0 {
            queue = shared
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.writing = true;
        queue.bytes = 0;
        let lines = std::mem::take(&mut queue.lines);
        let dropped = std::mem::take(&mut queue.dropped);
        drop(queue);
        for line in &lines {
            output.write_line(line);
        }
        output.lose(dropped);
    }
}

/// Standard error, and the count of lines that were lost.
struct Output<W> {
    out: W,
    format: Format,
    lost: u64,
    /// Whether the last line was cut in the middle.
    torn: bool,
}

impl<W: Write> Output<W> {
    fn new(out: W, format: Format) -> Self {
        Self {
            out,
            format,
            lost: 0,
            torn: false,
        }
    }

    fn write_line(&mut self, line: &[u8]) {
        if !(self.admit_losses() && self.offer(line)) {
            self.lost += 1;
        }
    }

    /// Counts lines that were dropped before they reached this thread.
    fn lose(&mut self, lines: u64) {
        self.lost += lines;
        self.admit_losses();
    }

    /// Writes the number of lost lines. Returns whether nothing remains to be reported.
    fn admit_losses(&mut self) -> bool {
        if self.lost == 0 {
            return true;
        }
        let lost = self.lost;
        let notice = match self.format {
            Format::Text => {
                format!(" WARN log lines could not be written and are lost lost={lost}\n")
            }
            Format::Json => format!(
                "{{\"level\":\"WARN\",\"message\":\"log lines could not be written and are lost\",\"lost\":{lost}}}\n"
            ),
        };
        let written = self.offer(notice.as_bytes());
        if written {
            self.lost = 0;
        }
        written
    }

    /// Writes a whole line, and first ends a line that was cut. Returns whether it succeeded.
    fn offer(&mut self, line: &[u8]) -> bool {
        if self.torn {
            if self.write_all(b"\n").is_err() {
                return false;
            }
            self.torn = false;
        }
        match self.write_all(line) {
            Ok(()) => true,
            Err(written) => {
                self.torn = written > 0;
                false
            }
        }
    }

    /// Writes all bytes. The error is the number of bytes that were written.
    fn write_all(&mut self, line: &[u8]) -> Result<(), usize> {
        let mut written = 0;
        let mut retries = 0;
        while written < line.len() {
            match self.out.write(&line[written..]) {
                Ok(0) => return Err(written),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock && retries < NOT_READY_RETRIES =>
                {
                    retries += 1;
                    thread::sleep(NOT_READY_PAUSE);
                }
                Err(_) => return Err(written),
            }
        }
        Ok(())
    }
}

/// Escapes characters that could start a new line, move the cursor or reverse text, except the end of the line.
fn make_safe(line: &str, style: Style) -> Cow<'_, str> {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    let is_safe = |c: char| !is_unsafe(c) || (c == '\x1b' && style.colours);
    if text.chars().all(is_safe) {
        return Cow::Borrowed(line);
    }
    let mut safe = String::with_capacity(line.len() + 16);
    for c in text.chars() {
        if is_safe(c) {
            safe.push(c);
        } else if style.format == Format::Json {
            // All of them are in the basic plane, so four digits are enough.
            safe.push_str(&format!("\\u{:04x}", c as u32));
        } else {
            safe.extend(c.escape_default());
        }
    }
    safe.push_str(end);
    Cow::Owned(safe)
}

/// Returns whether a character is a control character other than the tabulator, a separator that some readers treat as a line
/// end, or a character that changes the direction of text.
fn is_unsafe(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Style = Style {
        format: Format::Text,
        colours: false,
    };

    /// Accepts `room` bytes, then fails until it gets more.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Disk {
        fn with_room(bytes: usize) -> Self {
            Self(Arc::new(Mutex::new((Vec::new(), bytes))))
        }

        fn make_room(&self) {
            self.0.lock().unwrap().1 = usize::MAX;
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let fits = bytes.len().min(disk.1);
            if fits == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            disk.1 -= fits;
            disk.0.extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lost_lines_are_counted_and_reported_after_the_next_successful_write() {
        let disk = Disk::with_room(9);
        let mut output = Output::new(disk.clone(), Format::Text);
        for line in ["first\n", "second\n", "third\n"] {
            output.write_line(line.as_bytes());
        }
        assert_eq!(disk.text(), "first\nsec");
        disk.make_room();
        output.write_line(b"fourth\n");
        assert_eq!(
            disk.text(),
            "first\nsec\n WARN log lines could not be written and are lost lost=2\nfourth\n"
        );
    }

    #[test]
    fn a_stopped_reader_does_not_delay_logging() {
        /// Blocks until the test has finished logging.
        struct Stopped(std::sync::mpsc::Receiver<()>, Disk);
        impl Write for Stopped {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                self.1.write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let disk = Disk::with_room(usize::MAX);
        let lines = Lines::start(TEXT, Stopped(wait, disk.clone())).unwrap();
        let line = [b'x'; 1024];
        let logged = 3 * WAITING_BYTES_MAX / line.len();
        for _ in 0..logged {
            lines.push(&line);
        }
        drop(go_on);
        lines.flush();
        let text = disk.text();
        assert!(text.contains("are lost lost="), "no loss was reported");
        assert!(text.len() < 3 * WAITING_BYTES_MAX);
    }

    #[test]
    fn text_of_clients_cannot_start_a_line_or_reach_the_terminal() {
        let forged = "queue=a\n2026-01-01 ERROR forged\r\u{1b}[2J\u{85}\u{2028}\u{202e}\n";
        assert_eq!(
            make_safe(forged, TEXT),
            "queue=a\\n2026-01-01 ERROR forged\\r\\u{1b}[2J\\u{85}\\u{2028}\\u{202e}\n"
        );
        let json = Style {
            format: Format::Json,
            ..TEXT
        };
        assert_eq!(
            make_safe("{\"q\":\"\u{85}\"}\n", json),
            "{\"q\":\"\\u0085\"}\n"
        );
        assert_eq!(make_safe("plain ä\ttext\n", TEXT), "plain ä\ttext\n");
    }
}
