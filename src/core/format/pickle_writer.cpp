#include "format/pickle_writer.hpp"

#include <bit>

namespace emm::format {
namespace {

constexpr std::size_t kPiece = std::size_t{256} << 10;  // bytes that are written at once

}  // namespace

PickleWriter::PickleWriter(ByteSink& out) : sink_(out), out_("\x80\x04", 2) {}

void PickleWriter::again(Memo memo) {
  const auto is_short = memo < 256;
  out_ += is_short ? 'h' : 'j';
  little(memo, is_short ? 1 : 4);
}

void PickleWriter::text(std::string_view value) {
  if (const auto known = texts_.find(value); known != texts_.end()) return again(known->second);
  text_once(value);
  texts_.emplace(value, memos_ - 1);
}

void PickleWriter::text_once(std::string_view value) {
  const auto is_short = value.size() < 256;
  out_ += is_short ? '\x8c' : 'X';
  little(value.size(), is_short ? 1 : 4);
  out_ += value;
  out_ += '\x94';
  ++memos_;
}

void PickleWriter::number(std::uint64_t value) {
  if (value < 256) {
    out_ += 'K';
    return little(value, 1);
  }
  if (value < 65536) {
    out_ += 'M';
    return little(value, 2);
  }
  if (value < std::uint64_t{1} << 31) {
    out_ += 'J';
    return little(value, 4);
  }
  const auto bytes = static_cast<unsigned>(std::bit_width(value)) / 8 + 1;  // with the sign bit
  out_ += '\x8a';
  out_ += static_cast<char>(bytes);
  little(value, bytes < 8 ? bytes : 8);
  if (bytes > 8) out_ += '\0';
}

void PickleWriter::negative(std::int32_t value) {
  out_ += 'J';
  little(static_cast<std::uint32_t>(value), 4);
}

void PickleWriter::real(double value) {
  out_ += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (unsigned shift = 64; shift != 0; shift -= 8)
    out_ += static_cast<char>((bits >> (shift - 8)) & 0xff);
}

void PickleWriter::little(std::uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out_ += static_cast<char>((value >> (8 * i)) & 0xff);
}

Status PickleWriter::flush_some() {
  if (out_.size() < kPiece) return {};
  auto written = sink_.write(out_);
  out_.clear();
  return written;
}

Status PickleWriter::end() {
  out_ += '.';
  auto written = sink_.write(out_);
  out_.clear();
  return written;
}

}  // namespace emm::format
