#include "format/json_writer.hpp"
#include "log/writer.hpp"
#include "trace/call_site.hpp"

namespace emm::log {
namespace {

using format::JsonWriter;

void count_or_null(JsonWriter& json, std::string_view name,
                   const std::optional<std::uint64_t>& value) {
  json.key(name);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

void strings(JsonWriter& json, std::string_view name, const std::vector<std::string>& values) {
  json.key(name).begin_array();
  for (const auto& value : values) json.value(value);
  json.end_array();
}

void pass_counts(JsonWriter& json, const Pass& pass) {
  json.member("events", pass.events);
  json.member("allocs", pass.allocs);
  json.member("frees", pass.frees);
  json.member("failures", pass.failures);
  json.member("leaked", pass.leaked);
  json.member("hazards", pass.hazards);
  json.member("peak_live_bytes", pass.peak_live_bytes);
  json.member("peak_requested_bytes", pass.peak_requested_bytes);
  json.member("peak_reserved_bytes", pass.peak_reserved_bytes);
  json.member("ns_per_event", pass.ns_per_event);
}

/// Writes the members that follow the fixed ones in the schema.
void pass_extras(JsonWriter& json, const Pass& pass) {
  json.member("elapsed_ns", pass.elapsed_ns);
  json.member("leaked_bytes", pass.leaked_bytes);
  json.member("unmade", pass.unmade);
  json.member("peak_host_bytes", pass.peak_host_bytes);
  json.member("reserved_at_end_bytes", pass.reserved_at_end_bytes);
}

void percentiles(JsonWriter& json, std::string_view name, const std::optional<Percentiles>& of) {
  if (!of) {
    json.key(name).null();
    return;
  }
  json.key(name);
  json.begin_object();
  json.member("p50", of->p50);
  json.member("p90", of->p90);
  json.member("p99", of->p99);
  json.member("p999", of->p999);
  json.member("max", of->max);
  json.member("count", of->count);
  json.end_object();
}

/// Writes the frame that is shown first.
void call_site(JsonWriter& json, const std::vector<std::string>& frames) {
  json.key("call_site");
  frames.empty() ? json.null() : json.value(trace::CallSites().shown(frames).front());
}

void holders(JsonWriter& json, std::string_view name, const std::vector<Holder>& list) {
  json.key(name).begin_array();
  for (const auto& holder : list) {
    json.begin_object();
    json.member("id", holder.id);
    json.member("size", holder.size);
    json.member("line", holder.line);
    json.member("site", holder.frames.empty() ? std::string() : holder.frames.front());
    call_site(json, holder.frames);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

void statistics_to_json(JsonWriter& json, const ContextStatistics& statistics) {
  const auto group = [&](std::string_view name, const NamedStatistics& all) {
    json.key(name).begin_object();
    for (const auto& one : all) json.member(one.name, one.value);
    json.end_object();
  };
  group("torch", statistics.torch);
  group("rmm", statistics.rmm);
  group("other", statistics.other);
}

void failure_to_json(JsonWriter& json, std::string_view name, const std::optional<Failure>& of) {
  if (!of) {
    json.key(name).null();
    return;
  }
  json.key(name);
  json.begin_object();
  json.member("event", of->event);
  json.member("line", of->line);
  json.member("op", trace::name(of->op));
  json.member("id", of->id);
  json.member("size", of->size);
  json.member("thread", of->thread);
  json.member("stream", of->stream);
  json.member("outcome", trace::name(of->outcome));
  json.member("live_bytes", of->live_bytes);
  json.member("reserved_bytes", of->reserved_bytes);
  count_or_null(json, "largest_free_bytes", of->largest_free_bytes);
  holders(json, "holders", of->holders);
  json.member("context", of->context);
  json.member("error", of->error);
  count_or_null(json, "free_bytes", of->free_bytes);
  count_or_null(json, "idle_bytes", of->idle_bytes);
  count_or_null(json, "largest_idle_bytes", of->largest_idle_bytes);
  count_or_null(json, "waiting_bytes", of->waiting_bytes);
  strings(json, "frames", of->frames);
  call_site(json, of->frames);
  json.end_object();
}

std::string to_json(const Summary& summary) {
  std::string out;
  JsonWriter json(out, 2);
  json.begin_object();
  json.member("schema", "emmctl.replay/1");
  json.member("trace", summary.trace);
  json.member("manager", summary.manager);
  json.member("device", summary.device);
  json.member("clock", summary.clock);
  pass_counts(json, summary.pass);
  if (summary.alloc_latency || summary.free_latency) {
    json.key("latency_ns");
    json.begin_object();
    percentiles(json, "alloc", summary.alloc_latency);
    percentiles(json, "free", summary.free_latency);
    json.end_object();
  } else {
    json.key("latency_ns").null();
  }
  failure_to_json(json, "first_failure", summary.first_failure);
  json.key("outcomes");
  json.begin_object();
  json.member("worked_worked", summary.outcomes.succeeded_as_recorded);
  json.member("worked_fails", summary.outcomes.only_recording_succeeded);
  json.member("fails_works", summary.outcomes.only_replay_succeeded);
  json.member("fails_fails", summary.outcomes.failed_as_recorded);
  json.end_object();
  json.key("flushes").begin_array();
  for (const auto& flush : summary.flushes) {
    json.begin_object();
    json.member("event", flush.seq);
    json.member("count", flush.count);
    json.member("bytes", flush.bytes);
    json.end_object();
  }
  json.end_array();
  json.key("repeats").begin_array();
  for (const auto& pass : summary.repeats) {
    json.begin_object();
    pass_counts(json, pass);
    pass_extras(json, pass);
    json.end_object();
  }
  json.end_array();

  pass_extras(json, summary.pass);
  json.key("declined").begin_array();
  for (const auto& declined : summary.declined) {
    json.begin_object();
    json.member("op", trace::name(declined.op));
    json.member("count", declined.count);
    json.member("why", declined.why);
    json.end_object();
  }
  json.end_array();
  json.key("statistics").begin_array();
  for (const auto& statistics : summary.statistics) {
    json.begin_object();
    json.member("context", statistics.context);
    statistics_to_json(json, statistics);
    json.end_object();
  }
  json.end_array();
  percentiles(json, "lateness_ns", summary.lateness);
  json.member("threads", summary.threads);
  json.member("skipped", summary.skipped);
  json.member("violation_count", summary.violation_count);
  json.key("violations").begin_array();
  for (const auto& violation : summary.violations) {
    json.begin_object();
    json.member("kind", kViolationNames[static_cast<std::size_t>(violation.kind)]);
    json.member("event", violation.event);
    json.member("line", violation.line);
    json.member("words", violation.words);
    json.end_object();
  }
  json.end_array();
  holders(json, "leaks", summary.leaks);
  if (const auto& flushes = summary.recorded_flushes) {
    json.key("recorded_flushes");
    json.begin_object();
    json.member("recorded", flushes->recorded);
    json.member("as_recorded", flushes->as_recorded);
    json.member("unrecorded", flushes->unrecorded);
    json.member("first_difference", flushes->first_difference);
    json.end_object();
  } else {
    json.key("recorded_flushes").null();
  }
  if (const auto& model = summary.model_agreement) {
    const auto count = [&](std::string_view name, const ModelAgreement::Count& of) {
      json.key(name).begin_object();
      json.member("recorded", of.recorded).member("as_recorded", of.as_recorded).end_object();
    };
    count("segments", model->segments);
    count("placements", model->placements);
    count("releases", model->releases);
    count("refusals", model->refusals);
    json.member("inferred_pools", model->inferred_pools);
    json.member("ties", model->ties).member("unknown", model->unknown);
    json.member("inferred_flushes", model->inferred_flushes);
    const auto range = [&](std::string_view name, const ModelAgreement::Range& of) {
      json.key(name).begin_object().member("low", of.low).member("high", of.high).end_object();
    };
    json.key("free_run").begin_object();
    range("peak_reserved_bytes", model->peak_reserved);
    range("num_alloc_retries", model->retries);
    range("num_ooms", model->ooms);
    range("num_device_alloc", model->device_allocs);
    range("num_device_free", model->device_frees);
    json.end_object();
    json.key("inferred_limit");
    if (const auto& limit = model->inferred_limit) {
      json.begin_object().member("least_bytes", limit->least).member("below_bytes", limit->below);
      json.member("told_by", limit->by).end_object();
    } else {
      json.null();
    }
    json.member("first_difference", model->first_difference);
  }
  strings(json, "notes", summary.notes);
  json.member("interrupted", summary.interrupted);
  if (const auto& abnormal = summary.abnormal) {
    json.key("abnormal").begin_object();
    json.member("words", abnormal->words);
    json.member("signal", abnormal->signal);
    json.member("hung", abnormal->hung);
    json.key("event");
    abnormal->event ? json.value(*abnormal->event) : json.null();
    json.member("line", abnormal->line);
    json.end_object();
  }
  count_or_null(json, "stopped_at", summary.stopped_at);
  failure_to_json(json, "stop_state", summary.stop_state);
  json.end_object();
  out.push_back('\n');
  return out;
}

}  // namespace emm::log
