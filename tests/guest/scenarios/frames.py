"""Frames and captures, written and read without the project's own code: the packets that a scenario sends, and those on the wire."""
import struct

from machine import Failed

ETHERNET_BYTES = 14
TCP, UDP = 6, 17
# TCP flags
FIN, PSH, ACK = 1, 8, 16


def checksum(data):
    """The Internet checksum (RFC 1071): 0 over data that carries a correct one."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(protocol, source, destination, transport, identification=0, wrong=0):
    """A packet with a header checksum that is off by `wrong`."""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(transport), identification, 0x4000, 64, protocol, 0, source, destination)
    value = checksum(header) ^ wrong
    return header[:10] + struct.pack("!H", value) + header[12:] + transport


def ipv6(protocol, source, destination, transport):
    return struct.pack("!IHBB16s16s", 6 << 28, len(transport), protocol, 64, source, destination) + transport


def udp(source, destination, payload, checksum_field):
    return struct.pack("!HHHH", source, destination, 8 + len(payload), checksum_field) + payload


def tcp(source, destination, sequence, payload, checksum_field, flags=ACK | PSH | FIN):
    return struct.pack("!HHIIBBHHH", source, destination, sequence, 1, 5 << 4, flags, 65535, checksum_field, 0) + payload


def ethernet(packet, source=bytes.fromhex("02aabbccdd02")):
    kind = 0x86DD if packet[0] >> 4 == 6 else 0x0800
    return bytes.fromhex("02aabbccdd01") + source + struct.pack("!H", kind) + packet


def write_capture(path, frames):
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            out.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


def read_capture(path):
    """The frames of a capture in the classic format."""
    with open(path, "rb") as file:
        data = file.read()
    at, frames = 24, []
    while at + 16 <= len(data):
        length, = struct.unpack_from("<I", data, at + 8)
        frames.append(data[at + 16:at + 16 + length])
        at += 16 + length
    return frames


class Packet:
    """An IP packet with TCP or UDP in a frame; `wrong` names the checksums that are not correct."""

    def __init__(self, frame):
        ip = frame[ETHERNET_BYTES:]
        self.wrong = []
        if ip[0] >> 4 == 4:
            length, self.identification = struct.unpack_from("!HH", ip, 2)
            self.protocol, addresses, transport = ip[9], ip[12:20], ip[20:length]
            if checksum(ip[:20]):
                self.wrong.append("IPv4 header")
        else:
            length, self.protocol = struct.unpack_from("!HB", ip, 4)
            self.identification, addresses, transport = None, ip[8:40], ip[40:40 + length]
        pseudo = addresses + struct.pack("!II", len(transport), self.protocol)
        self.source, self.destination = struct.unpack_from("!HH", transport)
        # RFC 768: a datagram over IPv4 whose field is zero has no checksum.
        without = self.protocol == UDP and ip[0] >> 4 == 4 and transport[6:8] == b"\0\0"
        if not without and checksum(pseudo + transport):
            self.wrong.append({TCP: "TCP", UDP: "UDP"}[self.protocol])
        if self.protocol == TCP:
            self.sequence, = struct.unpack_from("!I", transport, 4)
            self.flags, self.payload = transport[13], transport[(transport[12] >> 4) * 4:]
        else:
            self.sequence, self.flags, self.payload = None, None, transport[8:]


def packets_between(frames, ports):
    """The TCP and UDP packets whose source port is one of `ports`, by source port in the order of the wire."""
    found = {port: [] for port in ports}
    for frame in frames:
        kind, = struct.unpack_from("!H", frame, 12)
        if kind not in (0x0800, 0x86DD) or frame[ETHERNET_BYTES + (9 if kind == 0x0800 else 6)] not in (TCP, UDP):
            continue
        packet = Packet(frame)
        if packet.source in found:
            found[packet.source].append(packet)
    return found


def check_segments(segments, sent, size):
    """The segments of one large TCP packet: sizes, sequence, identification, flags, checksums, and every byte of the payload."""
    if [len(segment.payload) for segment in segments[:-1]] != [size] * (len(segments) - 1) or len(segments[-1].payload) > size:
        raise Failed(f"segments of {[len(segment.payload) for segment in segments]} bytes, of {size} at most were asked for")
    if b"".join(segment.payload for segment in segments) != sent.payload:
        raise Failed("the segments carry another payload than the packet")
    for index, segment in enumerate(segments):
        last = index == len(segments) - 1
        expected = (sent.sequence + index * size, sent.flags if last else sent.flags & ~(FIN | PSH))
        if (segment.sequence, segment.flags) != expected or segment.wrong:
            raise Failed(f"segment {index}: sequence {segment.sequence} and flags {segment.flags:#x}, {expected} expected; wrong: {segment.wrong}")
        if sent.identification is not None and segment.identification != (sent.identification + index) & 0xFFFF:
            raise Failed(f"segment {index} has identification {segment.identification}, the packet had {sent.identification}")
