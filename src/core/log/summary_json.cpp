#include "format/json_writer.hpp"
#include "log/writer.hpp"
#include "trace/call_site.hpp"

namespace emm::log {
namespace {

using format::JsonWriter;

void pass_counts(JsonWriter& json, const Pass& pass) {
  json.member("events", pass.events).member("allocs", pass.allocs).member("frees", pass.frees);
  json.member("failures", pass.failures).member("leaked", pass.leaked);
  json.member("hazards", pass.hazards).member("peak_live_bytes", pass.peak_live_bytes);
  json.member("peak_requested_bytes", pass.peak_requested_bytes);
  json.member("peak_reserved_bytes", pass.peak_reserved_bytes);
  json.member("ns_per_event", pass.ns_per_event);
}

/// Writes the members that follow the fixed ones in the schema.
void pass_extras(JsonWriter& json, const Pass& pass) {
  json.member("elapsed_ns", pass.elapsed_ns).member("leaked_bytes", pass.leaked_bytes);
  json.member("unmade", pass.unmade).member("peak_host_bytes", pass.peak_host_bytes);
  json.member("reserved_at_end_bytes", pass.reserved_at_end_bytes);
}

/// Writes the frame that is shown first.
void call_site(JsonWriter& json, const std::vector<std::string>& frames) {
  json.key("call_site");
  frames.empty() ? json.null() : json.value(trace::CallSites().shown(frames).front());
}

}  // namespace

void write_members(JsonWriter& json, const Holder& holder) {
  json.member("id", holder.id).member("size", holder.size).member("line", holder.line);
  json.member("site", holder.frames.empty() ? std::string() : holder.frames.front());
  call_site(json, holder.frames);
}

void write_members(JsonWriter& json, const ContextStatistics& statistics) {
  const auto group = [&](std::string_view name, const NamedStatistics& all) {
    json.object(name, [&] {
      for (const auto& one : all) json.member(one.name, one.value);
    });
  };
  group("torch", statistics.torch);
  group("rmm", statistics.rmm);
  group("other", statistics.other);
}

void write_members(JsonWriter& json, const Failure& failure) {
  json.members(failure);
  call_site(json, failure.frames);
}

std::string to_json(const Summary& summary) {
  format::JsonAnswer json("emmctl.replay/1", 2);
  json.member("trace", summary.trace).member("manager", summary.manager);
  json.member("device", summary.device).member("clock", summary.clock);
  pass_counts(json, summary.pass);
  if (summary.alloc_latency || summary.free_latency) {
    json.object("latency_ns", [&] {
      json.member("alloc", summary.alloc_latency).member("free", summary.free_latency);
    });
  } else {
    json.key("latency_ns").null();
  }
  json.member("first_failure", summary.first_failure);
  json.object("outcomes", [&] {
    json.member("worked_worked", summary.outcomes.succeeded_as_recorded);
    json.member("worked_fails", summary.outcomes.only_recording_succeeded);
    json.member("fails_works", summary.outcomes.only_replay_succeeded);
    json.member("fails_fails", summary.outcomes.failed_as_recorded);
  });
  json.objects("flushes", summary.flushes, [&](const Flush& flush) {
    json.member("event", flush.seq).member("count", flush.count).member("bytes", flush.bytes);
  });
  json.objects("repeats", summary.repeats, [&](const Pass& pass) {
    pass_counts(json, pass);
    pass_extras(json, pass);
  });
  pass_extras(json, summary.pass);
  json.member("declined", summary.declined);
  json.objects("statistics", summary.statistics, [&](const ContextStatistics& statistics) {
    json.member("context", statistics.context);
    write_members(json, statistics);
  });
  json.member("lateness_ns", summary.lateness).member("threads", summary.threads);
  json.member("skipped", summary.skipped).member("violation_count", summary.violation_count);
  json.member("violations", summary.violations).member("leaks", summary.leaks);
  json.member("recorded_flushes", summary.recorded_flushes);
  if (const auto& model = summary.model_agreement) {
    json.member("segments", model->segments).member("placements", model->placements);
    json.member("releases", model->releases).member("refusals", model->refusals);
    json.member("inferred_pools", model->inferred_pools);
    json.member("ties", model->ties).member("unknown", model->unknown);
    json.member("inferred_flushes", model->inferred_flushes);
    json.object("free_run", [&] {
      json.member("peak_reserved_bytes", model->peak_reserved);
      json.member("num_alloc_retries", model->retries).member("num_ooms", model->ooms);
      json.member("num_device_alloc", model->device_allocs);
      json.member("num_device_free", model->device_frees);
    });
    json.object("inferred_limit", model->inferred_limit, [&](const auto& limit) {
      json.member("least_bytes", limit.least).member("below_bytes", limit.below);
      json.member("told_by", limit.by);
    });
    json.member("first_difference", model->first_difference);
  }
  json.member("notes", summary.notes).member("interrupted", summary.interrupted);
  if (summary.abnormal) json.member("abnormal", *summary.abnormal);
  json.member("stopped_at", summary.stopped_at).member("stop_state", summary.stop_state);
  return json.finish();
}

}  // namespace emm::log
