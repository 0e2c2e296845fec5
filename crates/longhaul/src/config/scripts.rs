//! Limits of the scripts in definitions.

use std::time::Duration;

use anyhow::{Result, bail};
use longhaul_system::Limits;

use super::File;

#[derive(clap::Args, Default)]
pub(super) struct ScriptArgs {
    /// Processor time of one script [default: 1000]
    #[arg(long, env = "LONGHAUL_SCRIPT_CPU_MILLIS", value_name = "MILLIS")]
    script_cpu_millis: Option<u64>,

    /// Time on the clock of one script [default: 4000]
    #[arg(long, env = "LONGHAUL_SCRIPT_WALL_MILLIS", value_name = "MILLIS")]
    script_wall_millis: Option<u64>,

    /// Memory of one script [default: 64]
    #[arg(long, env = "LONGHAUL_SCRIPT_MEMORY_MIB", value_name = "MIB")]
    script_memory_mib: Option<u64>,

    /// Stack of one script, which bounds how deep its calls nest [default: 1024]
    #[arg(long, env = "LONGHAUL_SCRIPT_STACK_KIB", value_name = "KIB")]
    script_stack_kib: Option<u64>,

    /// Processes that evaluate scripts [default: 2]
    #[arg(long, env = "LONGHAUL_SCRIPT_PROCESSES", value_name = "COUNT")]
    script_processes: Option<u64>,
}

impl ScriptArgs {
    pub(super) fn settle(&self, file: &File) -> Result<Limits> {
        let mut limits = Limits::default();
        let within =
            |name: &str, given: Option<u64>, range: std::ops::RangeInclusive<u64>| match given {
                Some(value) if !range.contains(&value) => {
                    let (least, most) = (range.start(), range.end());
                    bail!("--script-{name} must be from {least} to {most}, not {value}")
                }
                given => Ok(given),
            };
        let cpu = self.script_cpu_millis.or(file.script_cpu_millis);
        if let Some(millis) = within("cpu-millis", cpu, 1..=60_000)? {
            limits.cpu = Duration::from_millis(millis);
        }
        let wall = self.script_wall_millis.or(file.script_wall_millis);
        if let Some(millis) = within("wall-millis", wall, 1..=300_000)? {
            limits.wall = Duration::from_millis(millis);
        }
        let memory = self.script_memory_mib.or(file.script_memory_mib);
        if let Some(mib) = within("memory-mib", memory, 8..=4096)? {
            limits.memory_bytes = mib << 20;
        }
        let stack = self.script_stack_kib.or(file.script_stack_kib);
        if let Some(kib) = within("stack-kib", stack, 64..=4096)? {
            limits.stack_bytes = usize::try_from(kib << 10).unwrap_or(usize::MAX);
        }
        let processes = self.script_processes.or(file.script_processes);
        if let Some(count) = within("processes", processes, 1..=64)? {
            limits.processes = usize::try_from(count).unwrap_or(1);
        }
        Ok(limits)
    }
}
